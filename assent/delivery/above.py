"""What a program prints while a prompt is on the screen: it appears above the prompt."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from prompt_toolkit.application import run_in_terminal

if TYPE_CHECKING:
    from prompt_toolkit import Application


@contextmanager
def printing_above(application: Application[Any]) -> Generator[None]:
    """Meanwhile ``sys.stdout`` and ``sys.stderr`` print above the application; what goes to a file, goes there."""
    before = sys.stdout, sys.stderr
    above = [_Above(stream, application) if stream.isatty() else None for stream in before]
    sys.stdout, sys.stderr = (
        stream if over is None else cast("TextIO", over) for stream, over in zip(before, above, strict=True)
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for over in above:
            if over is not None:
                over.end()


class _Above:
    """A stream whose whole lines are written while the prompt is taken away for a moment."""

    def __init__(self, stream: TextIO, application: Application[Any]) -> None:
        self._stream = stream
        self._application = application
        self._loop = asyncio.get_running_loop()
        self._held: list[str] = []
        self._writing: Awaitable[None] | None = None

    def __getattr__(self, name: str) -> Any:  # all else is the stream's own business
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._held.append(text)
        if "\n" in text:
            self._loop.call_soon_threadsafe(self._pass_on)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Half a line waits for its end: the prompt would be drawn over it."""

    def end(self) -> None:
        """Write what is held, now that the prompt is gone."""
        self._write(self._take(whole=False))

    def _pass_on(self) -> None:
        context = self._application.context
        if context is None or not self._application.is_running:
            return  # `end` writes it
        lines = self._take(whole=True)
        if lines:
            self._writing = context.copy().run(run_in_terminal, lambda: self._write(lines))

    def _take(self, *, whole: bool) -> str:
        text = "".join(self._held)
        lines, end, rest = text.rpartition("\n") if whole else (text, "", "")
        self._held = [rest] if rest else []
        return lines + end

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()
