"""Lines that a person types into the terminal, without blocking the event loop."""

from __future__ import annotations

import os
import sys
from typing import TextIO

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import DummyHistory
    from prompt_toolkit.input import Input, create_input
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.output import Output, create_output
    from prompt_toolkit.output.vt100 import Vt100_Output
    from rich.console import Console
except ModuleNotFoundError as error:
    from assent.errors import MissingExtra

    raise MissingExtra("answering in the terminal", "delivery") from error

from assent.delivery.above import printing_above
from assent.delivery.column import Column
from assent.errors import DeliveryError


class Left(Exception):
    """The person pressed Ctrl-C or Ctrl-D."""


class Keyboard:
    """A terminal with somebody at it: `column` to say something, `line` to hear something."""

    def __init__(self, screen: TextIO) -> None:
        self._screen = screen
        self.column = Column(Console(file=screen, highlight=False))

    async def line(self, prompt: str, *, default: str = "") -> str:
        """What the person types up to Enter, beginning with ``default``, which they may change.

        Keys that were pressed before the prompt was there are thrown away: they were no answer to a question
        that nobody had seen. From then on a ``>`` is behind it. What the program prints meanwhile appears above
        the prompt. Raises `Left`.
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
        asked = _Asked(self.column.margin + self.column.shown(prompt), session)
        with printing_above(session.app):
            # Signals stay the host's; in a prompt Ctrl-C is a key. Errors of other tasks stay the loop's.
            line = await session.prompt_async(
                asked.message, default=default, set_exception_handler=False, handle_sigint=False
            )
        return line.encode("utf-8", "replace").decode()  # bytes that were no text

    def _output(self) -> Output:
        output = create_output(self._screen)
        if isinstance(output, Vt100_Output):
            output.enable_cpr = False  # the terminal's reply would be thrown away with the early keys
        return output


def keyboard_here() -> Keyboard:
    """The terminal that this process runs in. Raises `DeliveryError` if there is none."""
    screen = next((each for each in (sys.stdout, sys.stderr) if each.isatty()), None)
    if screen is None or not sys.stdin.isatty() or os.environ.get("TERM") == "dumb":
        raise DeliveryError("terminal", "there is no terminal to answer in", permanent=True)
    return Keyboard(screen)


class _Asked:
    """A prompt that is ready for keys once it was drawn, when what was typed until then is thrown away."""

    def __init__(self, prompt: str, session: PromptSession[str]) -> None:
        self._prompt = prompt
        self._application = session.app
        self._is_ready = False
        session.app.after_render += self._drawn

    def message(self) -> str:
        return f"{self._prompt} {'>' if self._is_ready else ' '} "

    def _drawn(self, _: object) -> None:
        self._application.after_render -= self._drawn
        _throw_away(self._application.input)
        self._is_ready = True
        self._application.invalidate()


def _throw_away(source: Input) -> None:
    if sys.platform == "win32":
        while source.read_keys():
            pass
    else:
        import termios

        termios.tcflush(source.fileno(), termios.TCIFLUSH)
