"""Where the command, the service and the examples are used a little wrong: one sentence each, and no traceback."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kit.paths import ROOT
from kit.patience import PATIENCE
from kit.warm_python import warm_python

from askfirst.errors import ServiceError, StoreError
from askfirst.service import background
from askfirst.service.app import create_app
from askfirst.service.background import Outage

ENV = {name: value for name, value in os.environ.items() if not name.startswith("ASKFIRST_")}


def run(
    folder: Path, *command: str, cold: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A process of its own, in an empty folder; cold where it matters what it loads."""
    done = subprocess.run(  # noqa: S603
        [*([sys.executable] if cold else warm_python()), *command],
        cwd=folder,
        env={**ENV, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def askfirst(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "-m", "askfirst.cli", *arguments, **variables)


# Serving.


def test_a_taken_port_is_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = askfirst(tmp_path, "serve", "--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: port {port} of 127.0.0.1 is taken: end what listens there, or choose another with --port.\n"
    )


def test_an_address_of_another_machine_is_a_sentence(tmp_path: Path) -> None:
    done = askfirst(tmp_path, "serve", "--host", "192.0.2.1", "--base-url", "https://a.example")
    assert done.returncode == 1
    assert re.fullmatch(r"Error: nothing can listen on 192\.0\.2\.1, port 8000: [^\n]+\n", done.stderr)


@pytest.mark.parametrize("host", ["0.0.0.0", "::1", "::"])
def test_a_host_that_is_no_address_for_people_needs_one(tmp_path: Path, host: str) -> None:
    done = askfirst(tmp_path, "serve", "--host", host)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"Error: --host {host} needs --base-url, ")


@pytest.mark.parametrize("url", ["https://a.example/?x=1", "https://a.example/hitl#top", "http://a.example"])
def test_a_base_url_that_cannot_be_is_named_as_the_option(tmp_path: Path, url: str) -> None:
    done = askfirst(tmp_path, "serve", "--base-url", url)
    assert done.returncode == 1
    assert re.fullmatch(rf"Error: --base-url must be [^\n]+, not '{re.escape(url)}'\n", done.stderr)


@pytest.mark.parametrize("url", ["https://a.example?x", "http://localhost:8000/#x", "https://a.example/a b"])
def test_a_base_url_has_no_query_no_fragment_and_no_blanks(url: str) -> None:
    with pytest.raises(ServiceError, match="base_url"):
        create_app("sqlite:///:memory:", base_url=url)


# The doctor.


def findings(folder: Path, **variables: str) -> dict[str, dict[str, str]]:
    done = askfirst(folder, "doctor", "--json", **variables)
    return {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_the_doctor_sees_that_the_folder_is_missing(tmp_path: Path) -> None:
    found = findings(tmp_path, ASKFIRST_DATABASE_URL="sqlite:///gone/askfirst.db")["database"]
    assert (found["state"], found["detail"]) == ("wrong", "the folder gone does not exist: make it")
    (tmp_path / "gone").mkdir()
    assert (
        findings(tmp_path, ASKFIRST_DATABASE_URL="sqlite:///gone/askfirst.db")["database"]["state"] == "note"
    )


def test_the_doctor_names_what_a_url_lacks(tmp_path: Path) -> None:
    found = findings(tmp_path, ASKFIRST_DATABASE_URL="sqlite://", ASKFIRST_BASE_URL="https://a.example?x")
    assert found["ASKFIRST_DATABASE_URL"]["state"] == "wrong"
    assert found["ASKFIRST_DATABASE_URL"]["detail"].startswith("names no file: sqlite:///path ")
    assert found["ASKFIRST_BASE_URL"]["state"] == "wrong"


# Missing extras.


@pytest.mark.parametrize(
    ("missing", "code", "extra"),
    [
        ("fastapi", "import askfirst.service.app", "service"),
        ("httpx2", "import askfirst.service.app", "service"),
        ("sqlalchemy", "import askfirst.service.embedding", "service"),
        ("fastapi", "import askfirst.service.embedding", "service"),
        ("httpx2", "from askfirst.client import HitlClient", "client"),
        ("httpx2", "from askfirst.client import request", "client"),
    ],
)
def test_a_missing_extra_is_named(tmp_path: Path, missing: str, code: str, extra: str) -> None:
    hidden = f"""
import sys
sys.modules[{missing!r}] = None
from askfirst.errors import MissingExtra
try:
    {code}
except MissingExtra as error:
    print(error.extra, error)
"""
    done = run(tmp_path, "-c", hidden, cold=True)
    assert done.stdout.startswith(f"{extra} ")
    assert done.stdout.endswith(f"pip install 'askfirst[{extra}]'\n")


# An outage.


class Hand:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


def test_an_outage_is_told_once_then_ever_more_seldom_then_its_end(caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    outage = Outage(hand.now)
    told: list[float] = []
    for tenth in range(10_000):
        hand.time = 100 + tenth / 10
        outage.failed("ab"[tenth % 2], StoreError("the store is away"))
        told += [hand.time - 100] * len(caplog.records)
        caplog.clear()
    assert told == [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811]
    outage.worked("c")  # which has not failed: it proves nothing
    outage.worked("a")
    assert caplog.records == []
    outage.worked("b")
    assert [record.getMessage() for record in caplog.records] == ["the store can be reached again"]
    outage.failed("a", StoreError("the store is away"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


@pytest.mark.anyio
async def test_the_pause_grows_while_a_task_fails_and_is_short_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    tries = iter([True, True, True, True, True, True, False, True])

    async def work() -> bool:
        if (fails := next(tries, None)) is None:
            raise asyncio.CancelledError
        if fails:
            raise StoreError("the store is away")
        return False

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 0.0)
    with pytest.raises(asyncio.CancelledError):
        await background.forever(work, 0.5, Outage(lambda: 0.0))
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 0.5, 1.0]


# The examples.


@pytest.mark.parametrize("port", ["70000", "-1", "web", "٨"])
def test_the_demo_wants_a_port(tmp_path: Path, port: str) -> None:
    done = run(tmp_path, str(ROOT / "examples" / "demo"), "--auto", f"--port={port}")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f"a port is a number up to 65535, not {port!r}")


def test_the_demo_names_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(tmp_path, str(ROOT / "examples" / "demo"), "--auto", "--fast", "--port", str(port))
    assert (done.returncode, done.stderr) == (
        1,
        f"port {port} is in use: choose another with --port, or none\n",
    )


@pytest.mark.parametrize("arguments", [[], ["x"], ["x", "y", "perhaps"], ["x", "y", "deny", "z"]])
def test_a_button_has_to_be_named(tmp_path: Path, arguments: list[str]) -> None:
    done = run(tmp_path, str(ROOT / "examples" / "checkpoint_bot" / "press.py"), *arguments)
    assert done.returncode == 1
    assert re.fullmatch(r"say which button: [^\n]+\n", done.stderr)


def test_nothing_to_answer_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, str(ROOT / "examples" / "cross_process" / "answer.py"))
    assert (done.returncode, done.stdout) == (0, "nothing waits for an answer\n")
