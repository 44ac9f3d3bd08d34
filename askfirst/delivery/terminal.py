"""Notices in a terminal, in labelled columns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from itertools import groupby

from askfirst.delivery.base import Ended, Notice, NoticeKind, Sent, is_web_link
from askfirst.delivery.text import shown
from askfirst.errors import DeliveryError, MissingExtra
from askfirst.visible_text import NOTE, visible

try:
    from rich.cells import cell_len, chop_cells
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text
except ModuleNotFoundError as error:
    raise MissingExtra("the terminal delivery", "delivery") from error

# Labelled text on a console: labels in a left column, texts in a right column.


_LABEL_WIDTH = 7
_NARROWEST = 8
_LONGEST_HELD = 200
_TOKENS = re.compile(r"\r?\n|[ \t]+|(?:(?!\r?\n)[^ \t\n])+")


class Column:
    """Blocks of text, each with a label in a left column.

    Only this class writes the left column: every line, wrapped ones too, begins with a label or with spaces, so that
    no text can pass for a label. Hidden characters are made `visible` first. If the console is not a terminal,
    nothing is wrapped.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self.unicode = console.encoding.lower().startswith("utf")
        self._label: str | None = None
        self._style = ""
        self._held = ""  # the last word, to which more text may be appended
        self._gap = ""  # the spaces before the next word
        self._used = 0  # cells in use on this line
        self._out: list[tuple[str, str]] = []  # texts with their styles that are not printed yet

    @property
    def label(self) -> str | None:
        """The label of the open block."""
        return self._label

    @property
    def room(self) -> int | None:
        """How many cells a line of text may have; None if nothing is wrapped."""
        if not self._console.is_terminal:
            return None
        return max(self._console.width - len(self.margin) - 1, _NARROWEST)

    @property
    def margin(self) -> str:
        """The left column of a line without a label."""
        return " " * _LABEL_WIDTH + (" │ " if self.unicode else " | ")

    def shown(self, text: str) -> str:
        """A text for this console: hidden characters made `visible`, others escaped that it cannot encode."""
        encoding = self._console.encoding
        return visible(text).encode(encoding, "backslashreplace").decode(encoding)

    def block(self, label: str, text: str, *, label_style: str = "bold", style: str = "") -> None:
        """Write a whole block."""
        self.open(label, label_style=label_style, style=style)
        self.write(text)
        self.close()

    def open(self, label: str, *, label_style: str = "bold", style: str = "") -> None:
        """Begin a block, and close the previous one."""
        self.close()
        self._label, self._style = label, style
        self._out += [(f"{label:>{_LABEL_WIDTH}}", label_style), (self.margin[_LABEL_WIDTH:], "dim")]

    def write(self, text: str) -> None:
        """Add to the open block. A word is printed when it is complete."""
        tokens = _TOKENS.findall(self._held + text)
        self._held = tokens.pop() if tokens and len(tokens[-1]) < _LONGEST_HELD else ""
        for token in tokens:
            self._add(token)
        self._flush()

    def close(self) -> None:
        """End the open block, if there is one."""
        if self._label is None:
            return
        if not self._held.endswith("\n"):
            self._add(self._held)
        self._held, self._label = "", None
        self._end_line()
        self._flush()

    def _add(self, token: str) -> None:
        if token.endswith("\n"):
            self._new_line()
        elif not token.strip(" \t"):
            self._gap += token.replace("\t", "    ")
        else:
            self._add_word(self.shown(token))

    def _add_word(self, word: str) -> None:
        room = self.room
        if room is None:
            pieces = [self._gap + word]
        elif self._used and self._used + len(self._gap) + cell_len(word) > room:
            self._new_line()
            pieces = chop_cells(word, room)
        else:
            pieces = chop_cells(self._gap + word, room - self._used)
        self._gap = ""
        for number, piece in enumerate(pieces):
            if number:
                self._new_line()
            self._out.append((piece, self._style))
            self._used += cell_len(piece)

    def _new_line(self) -> None:
        self._end_line()
        self._out.append((self.margin, "dim"))

    def _end_line(self) -> None:
        self._out.append(("\n", self._style))
        self._used, self._gap = 0, ""

    def _flush(self) -> None:
        out = Text()
        for style, pieces in groupby(self._out, key=lambda piece: piece[1]):
            out.append("".join(text for text, _ in pieces), style)
        self._out = []
        if out:
            out.highlight_regex(NOTE, "reverse")
            self._console.print(out, end="", soft_wrap=True)


_LABELS: dict[NoticeKind, tuple[str, str]] = {
    "review": ("review", "bold yellow"),
    "reminder": ("again", "bold yellow"),
    "warning": ("soon", "bold red"),
    "escalation": ("urgent", "bold red"),
    "progress": ("note", "bold"),
    "completed": ("decided", "bold green"),
    "expired": ("expired", "bold red"),
    "cancelled": ("closed", "bold red"),
}


class _PipeSafeConsole(Console):
    """A console that raises if its pipe is closed. Rich's own console would end the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class TerminalDelivery:
    """Writes notices to a terminal, with the whole link, which can be clicked.

    Texts are in a column of their own, right of our labels (see `Column`), and control and hidden characters are
    shown as code points. If the output is not a terminal, a notice is written as plain text. ``console`` is a rich
    console of your own; by default notices go to standard error, so that they do not mix with a program's output.
    """

    name = "terminal"
    shows_buttons = False

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _PipeSafeConsole(stderr=True, highlight=False)

    async def send(self, notice: Notice) -> Sent:
        """Write a notice."""
        await self.print(lambda: self.write(notice))
        return Sent(self.name, notice.case_id)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Write how the case ended; the earlier notice stays above."""
        await self.print(lambda: self.write(Notice(ended.kind, ended.case_id, ended.said)))

    async def print(self, write: Callable[[], object]) -> None:
        """Call a function that writes, in a thread: a stopped terminal (Ctrl-S) would block the event loop."""
        try:
            await asyncio.to_thread(write)
        except OSError as error:
            raise DeliveryError(self.name, "the terminal was closed", permanent=True) from error

    def write(self, notice: Notice) -> None:
        """Write a notice in the calling thread."""
        if not self.console.is_terminal:
            self._plain(shown(notice.text))
            return
        column = Column(self.console)
        label, style = _LABELS[notice.kind]
        column.block(label, notice.body, label_style=style)
        if service := notice.facts.get("service"):
            column.block("from", service)
        if notice.expires_at is not None and notice.review_url is not None:
            column.block("until", _local_time(notice.expires_at))
        if notice.review_url is not None:
            self._link(notice.review_url)

    def _link(self, url: str) -> None:
        """Write the link on a line of its own, without line breaks, so that it can be copied."""
        if is_web_link(url):
            text = Text(url, Style(link=url, underline=True))
            self.console.print(text, soft_wrap=True)
        else:
            self._plain(shown(url))

    def _plain(self, text: str) -> None:
        encoding = self.console.encoding
        said = text.encode(encoding, "backslashreplace").decode(encoding)
        self.console.print(Text(said), soft_wrap=True)


def _local_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M %Z")
