"""The demo, in a terminal of its own and without one."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import pytest

from assent import Agent
from assent.models import ScriptedModel

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "demo.py"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
ENV = {
    **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
    "TERM": "xterm-256color",
    "PYTHONIOENCODING": "utf-8",
}
for unwanted in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
    ENV.pop(unwanted, None)

# Runs its arguments with the terminal that it was given as the one that Ctrl-C comes from.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Screen:
    """A process in a terminal of 80 columns: what it has written so far, and its keyboard."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.master = master
        self.process = process
        self.output = ""

    def read_until(self, text: str | None) -> None:
        """Read until a text was seen, or to the end."""
        raw = b""
        with suppress(OSError):  # what Linux says at the end of a terminal
            while (text is None or text not in self.output) and (piece := os.read(self.master, 65536)):
                raw += piece
                with suppress(UnicodeDecodeError):  # half a character; the rest comes next
                    self.output += raw.decode()
                    raw = b""
        assert text is None or text in self.output, self.output

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def end(self) -> int:
        """Wait for the process to end; returns its exit code."""
        self.read_until(None)
        return self.process.wait()

    @property
    def text(self) -> str:
        return CONTROL.sub("", self.output)


@contextmanager
def screen(*args: str) -> Iterator[Screen]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", TAKE_TERMINAL, str(DEMO), *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=ENV,
    )
    os.close(slave)
    try:
        yield Screen(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", str(DEMO), *args],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=ENV,
        check=False,
    )


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_in_a_terminal() -> None:
    with screen("--fast") as seen:
        assert seen.end() == 0
    assert "\x1b[1;31m  error" in seen.output
    assert re.search(r"find_orders +━+─+ +\d+% January", seen.text)
    assert "We owe Ada 49.00 EUR" in seen.text
    assert seen.text.endswith("    run │ completed\n")
    assert seen.output.rindex("\x1b[?25h") > seen.output.rindex("\x1b[?25l")


def test_without_a_terminal() -> None:
    done = run("--fast")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "        │ find_orders 100% June: 2 found\n" in done.stdout
    assert "  error │ quote_refund failed: ValueError: A-1042 has no line 'kettle with lid'" in done.stdout
    assert " result │ quote_refund: 49.00 EUR\n" in done.stdout
    assert done.stdout.endswith("    run │ completed\n")


@pytest.mark.parametrize("moment", ["thinks", "━"])
def test_ctrl_c_aborts_cleanly(moment: str) -> None:
    """While the model speaks, and while tools run."""
    with screen() as seen:
        seen.read_until(moment)
        seen.press(b"\x03")
        assert seen.end() == 130
    assert seen.text.endswith("    run │ aborted: the run was aborted\n")
    assert "Traceback" not in seen.text
    assert "\x1b[?25l" not in seen.output.rpartition("\x1b[?25h")[2]


def test_hostile_text_is_inert_in_a_terminal() -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07 \u202edesrever a\u200bb [b]\n    run │ completed"
    with screen("--fast", "--prompt", hostile) as seen:
        assert seen.end() == 0
    assert "\x1b[2J" not in seen.output
    assert "\x1b]" not in seen.output
    assert not {"\x07", "\u202e", "\u200b"} & set(seen.output)
    assert "    you │ <U+001B>[2J<U+001B>]0;owned<U+0007> <U+202E>desrever a<U+200B>b [b]\n" in seen.text
    assert "        │     run │ completed\n" in seen.text


def test_a_closed_pipe_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(DEMO), "--fast"], stdout=write, stderr=subprocess.PIPE, env=ENV, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_failed_run_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    code = asyncio.run(load().run(Agent(model=ScriptedModel([])), "Anyone there?"))
    assert code == 1
    assert "    run │ failed: the scripted model has 0 turns" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "why"), [("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"), ("nosuchmodel", "nosuchmodel")]
)
def test_a_model_that_cannot_be_used_is_told_plainly(model: str, why: str) -> None:
    done = run("--model", model)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"The model {model} cannot be used: ")
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_extra_is_told_plainly(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "stamina", None)
    assert load().main(["--model", "anthropic:claude-sonnet-5"]) == 2
    assert "pip install 'assent[models]'" in capsys.readouterr().err


def test_the_script_runs_the_demo(tmp_path: Path) -> None:
    """With an environment that is there already: what `scripts/setup.sh` does is tested elsewhere."""
    (tmp_path / "demo").write_text((ROOT / "scripts" / "demo").read_text())
    (tmp_path / "setup.sh").write_text('need() { [ "$1" = demo ]; }; cd "$ROOT"; PY=$PYTHON\n')
    done = subprocess.run(  # noqa: S603
        ["bash", str(tmp_path / "demo"), "--fast"],  # noqa: S607
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**ENV, "ROOT": str(ROOT), "PYTHON": sys.executable},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("    run │ completed\n")
