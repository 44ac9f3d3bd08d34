"""Single keys from a terminal, without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


def has_keys() -> bool:
    """Whether somebody can press keys here. Windows has no terminals of this kind."""
    return os.name == "posix" and sys.stdin.isatty()


@contextmanager
def keys(hint: Callable[[], None]) -> Generator[asyncio.Queue[str]]:
    """What is pressed from now on, one press after another; ``hint`` tells the person which keys there are.

    What was pressed before that is thrown away: it was no answer to a question that was not there. An arrow, or
    what is pasted, comes as one text of several characters. Outside, the terminal is as it was.
    """
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    pressed: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        data = os.read(terminal, 1024)
        if not data:  # the terminal is gone, and would be ready for ever
            loop.remove_reader(terminal)
        else:
            pressed.put_nowait(data.decode("utf-8", "replace"))

    try:
        tty.setcbreak(terminal, termios.TCSAFLUSH)  # which throws away what is there
        hint()
        loop.add_reader(terminal, read)
        yield pressed
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
