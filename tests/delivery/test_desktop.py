"""The browser of the machine: an opener in place of the real one says what it was given."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from askfirst.delivery import DesktopDelivery, Ended, Notice, Sent, desktop
from askfirst.errors import DeliveryError

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="xdg-open is Linux's")]

LINK = "https://a.example/review/r1?token=t&x=$(touch${IFS}pwned);`touch${IFS}pwned`|'\""


@pytest.fixture
def opener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ``xdg-open`` that writes its arguments, one on each line, to the file ``opened``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    written(tmp_path / "xdg-open", 'printf \'%s\\n\' "$#" "$@" >> opened')
    return tmp_path


def written(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


async def test_the_link_is_opened_as_it_is_without_a_shell(opener: Path) -> None:
    sent = await DesktopDelivery().send(Notice("review", "r1", "Please decide.", LINK))
    assert sent == Sent("desktop", "r1")
    assert (opener / "opened").read_text() == f"1\n{LINK}\n"
    assert not (opener / "pwned").exists()


async def test_what_has_no_link_opens_nothing(opener: Path) -> None:
    delivery = DesktopDelivery()
    sent = await delivery.send(Notice("progress", "r1", "Somebody opened the page."))
    await delivery.update(sent, Ended("r1", "completed", "Approved."))
    assert not (opener / "opened").exists()


@pytest.mark.parametrize(
    "link",
    ["file:///etc/passwd", "javascript:alert(1)", "--help", "https://a b", "https://a/\n", "https://ä/"],
)
async def test_only_web_addresses_are_opened(opener: Path, link: str) -> None:
    with pytest.raises(DeliveryError, match="not a web address") as refused:
        await DesktopDelivery().send(Notice("review", "r1", "", link))
    assert refused.value.permanent
    assert not (opener / "opened").exists()


async def test_an_opener_that_fails_is_told_without_the_link(opener: Path) -> None:
    written(opener / "xdg-open", "exit 3")
    with pytest.raises(DeliveryError, match=r"exit code 3") as failed:
        await DesktopDelivery().send(Notice("review", "r1", "", LINK))
    assert "token" not in str(failed.value)
    assert not failed.value.permanent


async def test_no_display_is_named(opener: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY")
    with pytest.raises(DeliveryError, match="no display here: neither DISPLAY nor WAYLAND_DISPLAY"):
        await DesktopDelivery().send(Notice("review", "r1", "", LINK))


async def test_no_opener_is_named(opener: Path) -> None:
    (opener / "xdg-open").unlink()
    with pytest.raises(DeliveryError, match="no xdg-open here"):
        await DesktopDelivery().send(Notice("review", "r1", "", LINK))


async def test_a_browser_that_stays_in_the_foreground_is_not_waited_for(
    opener: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desktop, "_SECONDS", 0.2)
    written(opener / "xdg-open", "echo $$ > pid; exec /bin/sleep 20")
    try:
        await DesktopDelivery().send(Notice("review", "r1", "", LINK))
    finally:
        with suppress(FileNotFoundError):
            os.kill(int((opener / "pid").read_text()), signal.SIGKILL)
