"""Each command in an interpreter of its own: it loads what it needs, and nothing has been loaded for it before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kit.cli_rig import CLEAN, Shell
from kit.patience import PATIENCE

from askfirst.requests import ConfirmRequest


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pending"], "Ship it?"),
        (["show", "ID"], "Ship it?"),
        (["answer", "ID", "--approve"], ""),
        (["keys", "create", "tester"], ""),
        (["doctor"], "database"),
        (["wait", "GET", "http://127.0.0.1:1/", "--deliver", "terminal"], "could not be reached"),
    ],
    ids=lambda it: it[0] if isinstance(it, list) else "",
)
def test_a_command_runs_cold(tmp_path: Path, arguments: list[str], said: str) -> None:
    shell = Shell(tmp_path)
    shell.ask(ConfirmRequest(prompt="Ship it?"))
    arguments = [shell.printed() if it == "ID" else it for it in arguments]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "askfirst.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**CLEAN, "ASKFIRST_DATABASE_URL": shell.url},
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == (1 if arguments[0] == "wait" else 0), (done.stdout, done.stderr)
    assert said in done.stdout + done.stderr
