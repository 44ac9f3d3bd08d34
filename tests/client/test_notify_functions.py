"""The checklist's plain functions: bringing one link to a person, and checking one signature."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from askfirst.client import deliver_review_url, verify_hitl_signature
from askfirst.errors import DeliveryError, InvalidSecret

URL = "https://service.example/review/1?token=the-review-token"
SECRET = "what the service signs with"  # noqa: S105


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "TELEGRAM_BOT_TOKEN",
        "ASKFIRST_APPRISE_URL",
        "ASKFIRST_MAIL_TO",
        "SSH_CONNECTION",
        "DISPLAY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)


def test_without_anything_else_the_link_is_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    deliver_review_url(URL)
    printed = capsys.readouterr()
    assert URL in "".join(f"{printed.out}{printed.err}".split())


def test_over_ssh_no_browser_is_opened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", "")  # with nothing in it that could open one
    deliver_review_url(URL)
    printed = capsys.readouterr()
    assert URL in "".join(f"{printed.out}{printed.err}".split())


def test_on_a_desktop_the_browser_opens_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opener = tmp_path / "xdg-open"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
    opener.chmod(0o755)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", str(tmp_path))
    deliver_review_url(URL, mode="desktop")
    assert (tmp_path / "opened").read_text() == URL


@pytest.mark.parametrize("mode", ["messaging", "telegram", "desktop"])
def test_what_cannot_work_says_so_without_the_link(mode: str) -> None:
    with pytest.raises(DeliveryError) as caught:
        deliver_review_url(URL, mode)
    assert "the-review-token" not in f"{caught.value}{caught.value!r}"


@pytest.mark.parametrize(
    ("url", "mode"), [(URL, "pigeon"), ("file:///etc/passwd", "auto"), ("--help", "auto")]
)
def test_what_makes_no_sense_is_refused(url: str, mode: str) -> None:
    with pytest.raises(ValueError, match=r"mode is one of|web address"):
        deliver_review_url(url, mode)


@pytest.mark.anyio
async def test_an_event_loop_is_not_held_up() -> None:
    with pytest.raises(RuntimeError, match="to_thread"):
        deliver_review_url(URL)


def test_a_signature_fits_its_body_and_no_other() -> None:
    body = b'{"event":"review.completed"}'
    header = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert verify_hitl_signature(body, header, SECRET) is True
    for wrong in (None, "", "sha256=", header.upper(), header[:-1], header.removeprefix("sha256="), "ä"):
        assert verify_hitl_signature(body, wrong, SECRET) is False
    assert verify_hitl_signature(body + b" ", header, SECRET) is False
    assert verify_hitl_signature(body, header, "another") is False
    with pytest.raises(InvalidSecret):
        verify_hitl_signature(body, header, "")
