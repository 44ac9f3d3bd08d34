"""askfirst wait: any service that answers 202, from the request to the person's answer, against askfirst serve."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.cli_rig import Shell
from kit.patience import PATIENCE
from kit.terminal_screens import screen

LINK = re.compile(r"http://127\.0\.0\.1:\d+/review/(review_\w+)\?token=([\w-]{43})")


@dataclass(frozen=True)
class Served:
    """A running service, and a key for it."""

    shell: Shell
    base_url: str
    key: str

    @property
    def authorization(self) -> tuple[str, str]:
        return ("--header", f"Authorization: Bearer {self.key}")

    def wait(self, review: dict[str, Any], *options: str) -> subprocess.Popen[str]:
        """The command, on its way."""
        request = ("wait", "post", f"{self.base_url}/v1/reviews", "--json", json.dumps(review))
        return self.shell.start(*request, *self.authorization, "--deliver", "terminal", *options)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """askfirst serve, in a process of its own."""
    folder = tmp_path_factory.mktemp("served")
    shell = Shell(folder)
    key = shell("keys", "create", "tester").splitlines()[-1]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base_url = f"http://127.0.0.1:{port}"
    process = shell.start("serve", "--port", str(port))
    reader = threading.Thread(target=process.communicate)
    reader.start()
    try:
        while process.poll() is None:
            with suppress(httpx2.HTTPError):
                if httpx2.get(f"{base_url}/readyz", timeout=PATIENCE).status_code == 200:
                    break
            time.sleep(0.05)
        assert process.poll() is None
        yield Served(shell, base_url, key)
    finally:
        process.kill()
        reader.join()


def link_of(process: subprocess.Popen[str]) -> tuple[re.Match[str], str]:
    """The link, as soon as it is on standard error, and all that was written up to it."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if (match := LINK.search(line)) is not None:
            return match, seen
    raise AssertionError(seen)


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """Its exit code, its result, and what else it said."""
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err
    assert out.count("\n") == 1, (out, err)
    return process.returncode, json.loads(out), err


def answer(link: re.Match[str], action: str, data: dict[str, Any] | None = None) -> None:
    """A person decides."""
    url = link[0].replace("?", "/respond?")
    assert httpx2.post(url, json={"action": action, "data": data or {}}, timeout=PATIENCE).status_code == 200


@pytest.mark.parametrize(("action", "code"), [("approve", 0), ("reject", 5)])
def test_the_answer_is_the_result(served: Served, action: str, code: int) -> None:
    process = served.wait({"type": "approval", "prompt": "Ship it?"})
    link, seen = link_of(process)
    assert "Ship it?" in seen
    answer(link, action, {"feedback": "as you say"})
    exit_code, result, err = ended(process)
    assert exit_code == code
    assert result == {
        "status": "completed",
        "action": action,
        "data": {"feedback": "as you say"},
        "case_id": link[1],
        "rounds": 1,
        "responded_by": None,
        "submission_context": {"mode": "browser_submit"},
        "default_action": None,
        "reason": None,
    }
    assert served.key not in seen + err


def test_answered_with_the_command_of_the_other_side(served: Served, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text(f"Authorization: Bearer {served.key}\nX-Trace: 1\n")
    (tmp_path / "body").write_text('{"type": "input", "prompt": "Your name?"}')
    shell = Shell(tmp_path, served.shell.url)
    url = f"{served.base_url}/v1/reviews"
    process = shell.start(
        *("wait", "POST", url, "--header", "@headers", "--header", "Content-Type: application/json"),
        *("--data", "@body", "--deliver", "terminal", "--min-poll-interval", "1"),
    )
    link, _ = link_of(process)
    served.shell.here("answer", link[1], "--set", "name=Ann")
    code, result, _ = ended(process)
    assert (code, result["data"]) == (0, {"name": "Ann"})
    assert set(result["responded_by"]) == {"name"}


def test_a_case_that_expires(served: Served) -> None:
    review = {"type": "approval", "prompt": "Ship it?", "timeout": "1s", "default_action": "reject"}
    code, result, err = ended(served.wait(review, "--min-poll-interval", "1"))
    assert (code, result["status"], result["action"], result["default_action"]) == (
        6,
        "expired",
        "reject",
        "reject",
    )
    assert "xpired" in err or "in time" in err


def test_a_case_that_is_cancelled(served: Served) -> None:
    process = served.wait({"type": "confirmation", "prompt": "Ship it?"})
    link, _ = link_of(process)
    served.shell.here("cancel", link[1], "--reason", "sold out")
    code, result, err = ended(process)
    assert (code, result["status"], result["reason"]) == (7, "cancelled", "sold out")
    assert "sold out" in err


def test_nobody_is_asked(served: Served) -> None:
    done = served.shell.run("wait", "GET", f"{served.base_url}/healthz")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["status"] == "no_review"
    assert json.loads(done.stdout)["http_status"] == 200
    done = served.shell.run("wait", "POST", f"{served.base_url}/v1/reviews", "--json", "{}")
    assert (done.returncode, done.stderr) == (1, "Error: the service refused: HTTP 401.\n")
    assert json.loads(done.stdout)["http_status"] == 401


def test_ctrl_c_ends_the_wait_and_not_the_case(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "askfirst_command.py"
    script.write_text("from askfirst.cli.main import main\nmain()\n")
    review = json.dumps({"type": "approval", "prompt": "Ship it?"})
    arguments = ("wait", "POST", f"{served.base_url}/v1/reviews", "--json", review, *served.authorization)
    with screen(script, *arguments, "--deliver", "terminal") as terminal:
        terminal.read_until("Ship it?")
        terminal.read_until("?token=")
        terminal.press(b"\x03")
        assert terminal.end() == 130
        assert terminal.is_as_it_was
        link = LINK.search(terminal.text)
    assert "Traceback" not in terminal.output
    assert link is not None
    assert served.shell.case(link[1]).status == "pending"


# Against what is wrong.


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A service that answers everything the same; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_202_that_cannot_be_used_is_named_whole(tmp_path: Path) -> None:
    hitl = {"spec_version": "0.8", "case_id": "review_1", "review_url": "http://evil.example/?token=hunter2"}
    body = json.dumps({"status": "human_input_required", "hitl": hitl}).encode()
    with answering(202, body) as url:
        said = Shell(tmp_path, in_process=True).fails(1, "wait", "POST", url, "--deliver", "terminal")
    for field in ("review_url", "poll_url", "type", "prompt"):
        assert field in said
    assert "hunter2" not in said


def test_bodies_that_are_no_json_are_text(tmp_path: Path) -> None:
    with answering(202, b"wait a moment") as url:
        done = Shell(tmp_path, in_process=True).run("wait", "POST", url, "--deliver", "terminal")
    assert (done.returncode, json.loads(done.stdout)["body"]) == (0, "wait a moment")


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (
            ["POST", "http://ann:hunter2@127.0.0.1:1/x?token=hunter2"],
            1,
            "127.0.0.1:1 could not be reached: ConnectError.",
        ),
        (["POST", "ftp://127.0.0.1/"], 2, "not an http or https address"),
        (["POST", "http://[/"], 2, "not an http or https address"),
        (["POST", "http://127.0.0.1:1/", "--json", "{"], 2, "this is not JSON"),
        (["POST", "http://127.0.0.1:1/", "--json", "@nowhere"], 2, "No such file"),
        (["POST", "http://127.0.0.1:1/", "--json", "1", "--data", "1"], 2, "do not go together"),
        (["POST", "http://127.0.0.1:1/", "--header", "hunter2"], 2, "a header is NAME: VALUE"),
        (["POST", "http://127.0.0.1:1/", "--deliver", "pigeon"], 2, "'pigeon' is not one of"),
        (
            ["POST", "http://127.0.0.1:1/", "--deliver", "telegram"],
            1,
            "TELEGRAM_BOT_TOKEN and TELEGRAM_CHAT_ID must be set",
        ),
        (["POST", "http://127.0.0.1:1/", "--min-poll-interval", "0"], 2, "is not in the range"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    tmp_path: Path, arguments: list[str], code: int, problem: str
) -> None:
    done = Shell(tmp_path, in_process=True).run("wait", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert problem in done.stderr
    assert "hunter2" not in done.stderr
    if code == 1:
        assert done.stderr.count("\n") == 1


def test_progress_is_told_where_no_delivery_writes_to_the_terminal(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener = tmp_path / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    opener.chmod(0o755)
    shell = Shell(tmp_path, served.shell.url)
    shell.environment |= {"DISPLAY": ":7", "PATH": f"{tmp_path}:{shell.environment['PATH']}"}
    review = json.dumps({"type": "confirmation", "prompt": "Ship it?"})
    arguments = ("wait", "POST", f"{served.base_url}/v1/reviews", "--json", review, *served.authorization)
    process = shell.start(*arguments, "--deliver", "desktop")
    assert process.stderr is not None
    told = process.stderr.readline()
    assert re.match(r"review: .*Ship it\?.* \(review_\w+\)\n", told)
    while not (tmp_path / "opened").exists() or not (tmp_path / "opened").read_text():
        time.sleep(0.02)
    link = LINK.match((tmp_path / "opened").read_text())
    assert link is not None
    answer(link, "confirm")
    code, result, err = ended(process)
    assert (code, result["action"]) == (0, "confirm")
    assert link[2] not in told + err


def test_no_database_is_needed(tmp_path: Path) -> None:
    hidden = "import sys; [sys.modules.__setitem__(name, None) for name in ('sqlalchemy', 'fastapi')]"
    program = f"{hidden}; from askfirst.cli.main import main; main()"
    with answering(200, b'{"done": true}') as url:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", program, "wait", "POST", url, "--deliver", "terminal"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"status": "no_review", "http_status": 200, "body": {"done": True}}
