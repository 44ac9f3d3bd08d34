"""A program of `warm_python` is a process like any other: its streams, its end, and the signals that it gets."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit.warm_python import warm_python


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*warm_python(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # noqa: S603


def test_streams_folder_environment_and_arguments(tmp_path: Path) -> None:
    code = "import os, sys; e = os.environ.get; print(sys.stdin.read(), os.getcwd(), e('A'), e('PATH'), sys.argv)"
    done = run("-c", code, "ä", input="typed", cwd=tmp_path, env={"A": "b"})
    assert (done.stdout, done.stderr) == (f"typed {tmp_path} b None ['-c', 'ä']\n", "")


@pytest.mark.parametrize(
    ("code", "ended", "said"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('so it is')", 1, "so it is\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import warnings; warnings.warn('w')", 1, "UserWarning: w\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit; atexit.register(print, 'bye')", 0, ""),
    ],
)
def test_it_ends_as_a_program_ends(code: str, ended: int, said: str) -> None:
    done = run("-W", "error", "-c", code)
    assert (done.returncode, done.stderr[-len(said) or len(done.stderr) :]) == (ended, said)
    assert done.stdout == ("bye\n" if "atexit" in code else "")


WAITS = "import time; print('ready', flush=True); time.sleep(100)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_is_its_end(number: signal.Signals) -> None:
    command = [*warm_python(), "-c", WAITS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.read() == b""  # which is the end of the program, not only of its stand-in
        assert process.wait() == -number
