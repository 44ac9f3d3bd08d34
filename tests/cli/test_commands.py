"""The askfirst command: what it prints, what it does, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from unittest import mock

import httpx2
import pytest
from kit.paths import ROOT
from kit.patience import PATIENCE
from kit.warm_python import warm_python

from askfirst.cli import reference
from askfirst.cli.main import main
from askfirst.protocol import SigningKey, jwks_document
from askfirst.service.audit import verify_head
from askfirst.service.callbacks import callback_secret

SECRET = "0123456789abcdef" * 2


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ASKFIRST_DATABASE_URL", "ASKFIRST_SECRET", "ASKFIRST_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


class Shell:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What the command prints, or says on standard error if it fails."""
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = self._capsys.readouterr()
        assert ended.value.code == code, (out, err)
        assert "Traceback" not in err
        if code == 1:
            assert out == ""
            assert re.fullmatch(r"Error: [^\n]+\n", err)
            return err
        return out or err


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


# Keys.


def test_a_key_is_alone_on_the_last_line(shell: Shell, empty_folder: Path) -> None:
    *about, key = shell("keys", "create", "billing").splitlines()
    assert re.fullmatch(r"askfirst_[A-Za-z0-9_-]{43}", key)
    assert len(about) == 1
    key_id = re.search(r"key_\w+", about[0])
    assert key_id is not None
    assert (empty_folder / "askfirst.db").exists()
    assert key not in shell("keys", "list") + shell("audit", "export")
    (listed,) = shell("keys", "list").splitlines()
    assert re.fullmatch(rf"{key_id[0]}  created \d{{4}}-\S+Z  active  billing", listed)
    assert shell("keys", "revoke", key_id[0]) == f"Revoked {key_id[0]}.\n"
    assert "  revoked " in shell("keys", "list")
    assert "could be revoked" in shell("keys", "revoke", key_id[0], code=1)


def test_keys_as_json(shell: Shell) -> None:
    shell("keys", "create", 'a "b"\x1b[31m')
    (line,) = shell("keys", "list", "--json").splitlines()
    key = json.loads(line)
    assert set(key) == {"key_id", "name", "created_at", "revoked_at"}
    assert key["name"] == 'a "b"\x1b[31m'
    assert "\x1b" not in shell("keys", "list")


def test_the_callback_secret_is_shown_to_whoever_makes_the_key(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKFIRST_SECRET", SECRET)
    about, secret, key = shell("keys", "create", "billing").splitlines()
    key_id = re.search(r"key_\w+", about)
    assert key_id is not None
    derived = callback_secret(SECRET, key_id[0])
    assert secret == f"Callback secret: {derived}"
    assert key.startswith("askfirst_")
    assert shell("keys", "callback-secret", key_id[0]) == f"{derived}\n"
    assert "no key 'key_x'" in shell("keys", "callback-secret", "key_x", code=1)
    monkeypatch.delenv("ASKFIRST_SECRET")
    assert "ASKFIRST_SECRET is not set" in shell("keys", "callback-secret", key_id[0], code=1)


def test_a_short_secret_makes_no_key(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_SECRET", "short")
    assert "at least 32 characters" in shell("keys", "create", "billing", code=1)
    monkeypatch.delenv("ASKFIRST_SECRET")
    assert shell("keys", "list") == ""


# The trail.


def test_the_trail_is_verified_and_exported(shell: Shell, empty_folder: Path) -> None:
    assert shell("audit", "verify").startswith("The audit trail is whole: 0 rows")
    for name in ("a", "b", "c"):
        shell("keys", "create", name)
        assert "1 rows" not in shell("audit", "verify")
    rows = [json.loads(line) for line in shell("audit", "export").splitlines()]
    assert [row["detail"] for row in rows] == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    head = rows[-1]["hash"]
    assert shell("audit", "verify") == f"The audit trail is whole: 3 rows, head {head}.\n"
    whole = shell("audit", "verify", "--head", f"2:{rows[1]['hash']}")
    assert whole == f"The audit trail is whole: 3 rows, head {head}.\n"
    assert "row 2, or one before it, was written anew" in shell(
        "audit", "verify", "--head", f"2:{head}", code=3
    )
    assert "rows 4 to 5 are missing" in shell("audit", "verify", "--head", f"5:{head}", code=3)
    assert "--head is the number of rows" in shell("audit", "verify", "--head", "5", code=2)
    connection = sqlite3.connect(empty_folder / "askfirst.db")
    connection.execute("DELETE FROM askfirst_audit WHERE seq = 2")
    connection.commit()
    connection.close()
    assert shell("audit", "verify", code=3) == "The audit trail is not whole:\nrow 2 is missing\n"
    assert json.loads(shell("audit", "verify", "--json", code=3)) == {
        "is_whole": False,
        "rows": 2,
        "head": head,
        "faults": [{"seq": 3, "problem": "row 2 is missing"}],
        "fault_count": 1,
        "unlinked": 0,
        "older": 0,
    }


# Purging, and what goes wrong.


def test_purge_says_how_many(shell: Shell) -> None:
    assert shell("purge") == "Deleted 0 cases.\n"
    assert "Invalid value" in shell("purge", "--older-than-days", "-1", code=2)


def test_the_trails_head_is_pushed_and_signed(shell: Shell, empty_folder: Path) -> None:
    taken: list[dict[str, Any]] = []

    class Keeper(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    key = SigningKey.generate()
    path = empty_folder / "signing.key"
    path.write_text(json.dumps(key.private_jwk()))
    with HTTPServer(("127.0.0.1", 0), Keeper) as keeper:
        Thread(target=keeper.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{keeper.server_port}/heads"
        assert shell("audit", "push", url) == "There is no row yet.\n"
        shell("keys", "create", "a")
        assert "can be read by others" in shell("audit", "push", url, "--signing-key", str(path), code=1)
        path.chmod(0o600)
        said = shell("audit", "push", url, "--signing-key", str(path))
        keeper.shutdown()
    assert "https" in shell("audit", "push", "http://heads.example/", code=1)
    (head,) = taken
    kept = verify_head(head, jwks_document([key]))
    assert said == f"Pushed {kept.seq}:{kept.hash}.\n"
    assert shell("audit", "verify", "--head", f"{kept.seq}:{kept.hash}").startswith(
        "The audit trail is whole"
    )
    path.write_text("[1]")
    assert "holds no private key" in shell("audit", "push", url, "--signing-key", str(path), code=1)


@pytest.mark.parametrize("arguments", [["keys", "list"], ["audit", "verify"], ["purge"], ["serve"]])
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mongodb://x", "no store is known"),
        ("sqlite:////nowhere/at/all.db", "cannot be opened"),
        ("postgresql://ann:hunter2@127.0.0.1:1/x", "cannot be opened"),
    ],
)
def test_a_database_that_cannot_be_opened_is_a_sentence(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, url: str, problem: str, arguments: list[str]
) -> None:
    monkeypatch.setenv("ASKFIRST_DATABASE_URL", url)
    said = shell(*arguments, code=1)
    assert problem in said
    assert "hunter2" not in said


@pytest.mark.parametrize("arguments", [["nonsense"], ["keys", "create"], ["serve", "--port", "0"]])
def test_wrong_usage_ends_with_two(shell: Shell, arguments: list[str]) -> None:
    assert "Usage: " in shell(*arguments, code=2)


@pytest.mark.parametrize("missing", ["click", "sqlalchemy"])
def test_without_the_extra_a_sentence_names_it(missing: str, empty_folder: Path) -> None:
    hidden = f"import sys; sys.modules[{missing!r}] = None; from askfirst.cli.main import main; main()"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", hidden, "keys", "list"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "Error: the askfirst command needs the 'service' extra: pip install 'askfirst[service]'\n"
    )


def test_a_hook_without_its_extra_blocks_the_call_and_names_the_extra(empty_folder: Path) -> None:
    hidden = "import sys; sys.modules['click'] = None; from askfirst.cli.main import main; main()"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", hidden, "hook"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "so the call is blocked: askfirst hook needs the 'mcp' extra: pip install 'askfirst[mcp]'" in (
        done.stderr
    )


def test_the_command_has_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"askfirst": f"{main.__module__}:{main.__name__}"}


# Serving.


@contextmanager
def serving(
    port: int, *options: str, cold: bool = False
) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    """``askfirst serve`` in a process of its own, and what it has logged until it listens."""
    python = [sys.executable] if cold else warm_python()
    command = [*python, "-m", "askfirst.cli", "serve", "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert process.stderr is not None
        logged: list[dict[str, Any]] = []
        for line in process.stderr:
            logged.append(json.loads(line))
            if "running on" in line:
                break
        yield process, logged
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_serve_answers_logs_json_and_stops(empty_folder: Path, unused_port: int) -> None:
    with serving(unused_port, cold=True) as (process, logged):
        answered = httpx2.get(f"http://127.0.0.1:{unused_port}/review/x?token=secret", timeout=PATIENCE)
        assert answered.status_code == 404
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=PATIENCE)[1]
    logged += [json.loads(line) for line in rest.splitlines()]
    requests = [line for line in logged if line["logger"] == "askfirst.service.requests"]
    assert [(line["path"], line["status"]) for line in requests] == [("/review/x", 404)]
    assert "secret" not in json.dumps(logged)


def test_what_the_operator_allows_is_said_by_options(shell: Shell, unused_port: int) -> None:
    key = shell("keys", "create", "billing").splitlines()[-1]
    asking = {
        "type": "approval",
        "prompt": "p",
        "default_action": "approve",
        "hitl_callback_url": "http://127.0.0.1:1/",
    }

    def opened(*options: str) -> httpx2.Response:
        with serving(unused_port, *options):
            url = f"http://127.0.0.1:{unused_port}/v1/reviews"
            return httpx2.post(url, json=asking, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE)

    assert opened().status_code == 422
    refused = opened("--allow-default-approve", "--inline").json()
    assert "callback" in refused["message"]
    secret = {"ASKFIRST_SECRET": SECRET}
    with mock.patch.dict(os.environ, secret):
        allowed = opened(
            "--allow-default-approve",
            "--inline",
            "--development",
            "--push-heads",
            "http://127.0.0.1:1/",
            "--links",
            "service",
            "--link-days",
            "2",
        )
    assert allowed.status_code == 202, allowed.text
    hitl = allowed.json()["hitl"]
    assert hitl["submit_url"].endswith("/respond")
    assert hitl["submit_token"]
    assert "token=" not in hitl["review_url"]
    assert hitl["default_action"] == "approve"


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# Documentation.


def test_the_page_of_the_command_is_what_help_says() -> None:
    page = ROOT / "docs" / "reference" / "command.md"
    assert page.read_text() == reference.reference(), (
        "run: python -m askfirst.cli.reference > docs/reference/command.md"
    )


def test_the_page_has_every_command() -> None:
    headings = re.findall(r"^## (.+)$", reference.reference(), re.MULTILINE)
    assert headings == [
        "askfirst",
        "askfirst answer",
        "askfirst audit",
        "askfirst audit export",
        "askfirst audit push",
        "askfirst audit verify",
        "askfirst cancel",
        "askfirst config",
        "askfirst config check",
        "askfirst continuations",
        "askfirst continuations retry",
        "askfirst deliveries",
        "askfirst deliveries retry",
        "askfirst doctor",
        "askfirst encryption",
        "askfirst encryption new-key",
        "askfirst encryption rewrite",
        "askfirst encryption rotate",
        "askfirst gate",
        "askfirst hook",
        "askfirst keys",
        "askfirst keys callback-secret",
        "askfirst keys create",
        "askfirst keys list",
        "askfirst keys revoke",
        "askfirst link",
        "askfirst mcp",
        "askfirst mcp serve",
        "askfirst notify",
        "askfirst notify test",
        "askfirst outbox",
        "askfirst pending",
        "askfirst policy",
        "askfirst policy check",
        "askfirst policy explain",
        "askfirst policy show",
        "askfirst purge",
        "askfirst serve",
        "askfirst show",
        "askfirst slack",
        "askfirst slack check",
        "askfirst slack manifest",
        "askfirst wait",
        "askfirst worker",
    ]
