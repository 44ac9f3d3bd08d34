"""A prompt in a terminal: a person types a line without blocking the event loop; other output appears above it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from prompt_toolkit.application import run_in_terminal

from askfirst.delivery.terminal import Column
from askfirst.errors import DeliveryError

if TYPE_CHECKING:
    from prompt_toolkit import Application


# Printing the program's output above the prompt.


@contextmanager
def printing_above(application: Application[Any]) -> Generator[None]:
    """Within this context ``sys.stdout`` and ``sys.stderr`` print above the prompt, unless they go to a file."""
    before = sys.stdout, sys.stderr
    above = [_AbovePrompt(stream, application) if stream.isatty() else None for stream in before]
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


class _AbovePrompt:
    """A stream that hides the prompt for a moment to write whole lines above it."""

    def __init__(self, stream: TextIO, application: Application[Any]) -> None:
        self._stream = stream
        self._application = application
        self._loop = asyncio.get_running_loop()
        self._held: list[str] = []
        self._writing: Awaitable[None] | None = None

    def __getattr__(self, name: str) -> Any:  # everything else is passed to the wrapped stream
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._held.append(text)
        if "\n" in text:
            self._loop.call_soon_threadsafe(self._write_lines)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Do nothing: a part of a line is held until the line is complete, else the prompt would be drawn over it."""

    def end(self) -> None:
        """Write the held text, after the prompt was removed."""
        self._write(self._take_held(whole=False))

    def _write_lines(self) -> None:
        context = self._application.context
        if context is None or not self._application.is_running:
            return  # `end` will write it
        lines = self._take_held(whole=True)
        if lines:
            self._writing = context.copy().run(run_in_terminal, lambda: self._write(lines))

    def _take_held(self, *, whole: bool) -> str:
        text = "".join(self._held)
        lines, end, rest = text.rpartition("\n") if whole else (text, "", "")
        self._held = [rest] if rest else []
        return lines + end

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()


try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import DummyHistory
    from prompt_toolkit.input import Input, create_input
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.output import Output, create_output
    from prompt_toolkit.output.vt100 import Vt100_Output
    from rich.console import Console
except ModuleNotFoundError as error:
    from askfirst.errors import MissingExtra

    raise MissingExtra("answering in the terminal", "delivery") from error


class Left(Exception):
    """The person left the prompt: they pressed Ctrl-C or Ctrl-D."""


class Keyboard:
    """A terminal with a person: `column` writes to them, `line` reads a line from them."""

    def __init__(self, screen: TextIO) -> None:
        self._screen = screen
        self.column = Column(Console(file=screen, highlight=False))

    async def line(self, prompt: str, *, default: str = "") -> str:
        """Read a line up to Enter. It begins with ``default``, which the person may change. Raises `Left`.

        Keys that were pressed before the prompt was drawn are discarded: they cannot be an answer to a question that
        the person had not seen. A ``>`` behind the prompt shows that keys count from now on. Output of the program
        appears above the prompt.
        """
        source, output = create_input(), self._output()
        clear_typeahead(source)
        session: PromptSession[str] = PromptSession(
            input=source,
            output=output,
            history=DummyHistory(),
            interrupt_exception=Left,
            eof_exception=Left,
        )
        asked = _ReadyPrompt(self.column.margin + self.column.shown(prompt), session)
        with printing_above(session.app):
            # The host keeps its signal handlers (Ctrl-C in a prompt is a key) and the loop's exception handler.
            line = await session.prompt_async(
                asked.message, default=default, set_exception_handler=False, handle_sigint=False
            )
        return line.encode("utf-8", "replace").decode()  # typed bytes may not be valid UTF-8

    def _output(self) -> Output:
        output = create_output(self._screen)
        if isinstance(output, Vt100_Output):
            output.enable_cpr = False  # the terminal's reply would be discarded with the early keys
        return output


def keyboard_here() -> Keyboard:
    """The terminal that this process runs in. Raises `DeliveryError` if there is none."""
    screen = next((each for each in (sys.stdout, sys.stderr) if each.isatty()), None)
    if screen is None or not sys.stdin.isatty() or os.environ.get("TERM") == "dumb":
        raise DeliveryError("terminal", "there is no terminal to answer in", permanent=True)
    return Keyboard(screen)


class _ReadyPrompt:
    """A prompt that discards what was typed before it was drawn, and then shows that it is ready."""

    def __init__(self, prompt: str, session: PromptSession[str]) -> None:
        self._prompt = prompt
        self._application = session.app
        self._is_ready = False
        session.app.after_render += self._on_first_render

    def message(self) -> str:
        return f"{self._prompt} {'>' if self._is_ready else ' '} "

    def _on_first_render(self, _: object) -> None:
        self._application.after_render -= self._on_first_render
        _discard_keys(self._application.input)
        self._is_ready = True
        self._application.invalidate()


def _discard_keys(source: Input) -> None:
    if sys.platform == "win32":
        while source.read_keys():
            pass
    else:
        import termios

        termios.tcflush(source.fileno(), termios.TCIFLUSH)
