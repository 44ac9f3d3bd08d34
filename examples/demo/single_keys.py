"""Single keys from a terminal, without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


def has_keys() -> bool:
    """Whether single keys can be read: standard input is a terminal, and the system is not Windows."""
    return os.name == "posix" and sys.stdin.isatty()


@contextmanager
def keys(hint: Callable[[], None]) -> Generator[asyncio.Queue[str]]:
    """A queue of the keys that are pressed from now on; ``hint`` tells the person which keys there are.

    Keys that were pressed before are discarded: they cannot answer a question that was not shown yet. An arrow key or
    pasted text comes as one text of several characters. After the context, the terminal is as before.
    """
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    pressed: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        data = os.read(terminal, 1024)
        if not data:  # the terminal is closed: it would count as readable for ever
            loop.remove_reader(terminal)
        else:
            pressed.put_nowait(data.decode("utf-8", "replace"))

    try:
        tty.setcbreak(terminal, termios.TCSAFLUSH)  # the flush discards earlier keys
        hint()
        loop.add_reader(terminal, read)
        yield pressed
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
