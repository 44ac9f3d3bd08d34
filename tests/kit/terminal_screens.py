"""A program in a terminal, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kit.warm_python import warm_python

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
ENV = {
    **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
    "TERM": "xterm-256color",
    "PYTHONIOENCODING": "utf-8",
}
for unwanted in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
    ENV.pop(unwanted, None)


class Screen:
    """A process in a terminal of 80 columns: its output so far, and its keyboard."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.master = master
        self.process = process
        self.output = ""

    def read_until(self, text: str | None) -> None:
        """Read until a text appears, or to the end."""
        raw = b""
        with suppress(OSError):  # what Linux says at the end of a terminal
            while (text is None or text not in self.output) and (piece := os.read(self.master, 65536)):
                raw += piece
                with suppress(UnicodeDecodeError):  # half a character; the rest comes next
                    self.output += raw.decode()
                    raw = b""
        assert text is None or text in self.output, self.output

    @property
    def is_as_it_was(self) -> bool:
        """Whether the terminal's settings are restored: it echoes typed text, and reads whole lines."""
        flags = termios.tcgetattr(self.master)[3]
        return bool(flags & termios.ECHO and flags & termios.ICANON)

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
def screen(script: Path, *args: str) -> Iterator[Screen]:
    """Run a Python script in a new terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(  # noqa: S603
        [*warm_python(terminal=True), str(script), *args],
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
