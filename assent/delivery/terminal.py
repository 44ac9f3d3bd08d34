"""Notices in the terminal that the program runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

try:
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text
except ModuleNotFoundError as error:
    from assent.errors import MissingExtra

    raise MissingExtra("the terminal delivery", "delivery") from error

from assent.delivery.base import Ended, Notice, NoticeKind, Sent
from assent.delivery.column import Column
from assent.delivery.links import is_web_link
from assent.delivery.text import shown
from assent.errors import DeliveryError

_LABELS: dict[NoticeKind, tuple[str, str]] = {
    "review": ("review", "bold yellow"),
    "reminder": ("again", "bold yellow"),
    "progress": ("note", "bold"),
    "completed": ("decided", "bold green"),
    "expired": ("expired", "bold red"),
    "cancelled": ("closed", "bold red"),
}


class _Lasting(Console):
    """A console that leaves it to the caller what to do about a closed pipe; rich would end the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class TerminalDelivery:
    """Writes notices to a terminal, the link as one that can be clicked and in full.

    Text stands to the right of a column that it cannot reach, and characters that act or hide are shown as code
    points. Where the output is no terminal, a notice is its plain text. ``console`` is a rich one of your own;
    without it notices go to standard error, so that they do not mix with what a program prints.
    """

    name = "terminal"
    shows_buttons = False

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _Lasting(stderr=True, highlight=False)

    async def send(self, notice: Notice) -> Sent:
        """Write a notice."""
        await self.print(lambda: self.write(notice))
        return Sent(self.name, notice.case_id)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Write how the case ended, below what was written before."""
        await self.print(lambda: self.write(Notice(ended.kind, ended.case_id, ended.text)))

    async def print(self, write: Callable[[], object]) -> None:
        """Call a function that writes, beside the event loop: a terminal may be held up (Ctrl-S)."""
        try:
            await asyncio.to_thread(write)
        except OSError as error:
            raise DeliveryError(self.name, "the terminal is gone", permanent=True) from error

    def write(self, notice: Notice) -> None:
        """Write a notice now."""
        if not self.console.is_terminal:
            self._plain(shown(notice.text))
            return
        column = Column(self.console)
        label, style = _LABELS[notice.kind]
        column.block(label, notice.body, label_style=style)
        if service := notice.facts.get("service"):
            column.block("from", service)
        if notice.expires_at is not None and notice.review_url is not None:
            column.block("until", _local(notice.expires_at))
        if notice.review_url is not None:
            self._link(notice.review_url)

    def _link(self, url: str) -> None:
        """The link on a line of its own that nothing breaks, so that it can be copied."""
        if is_web_link(url):
            text = Text(url, Style(link=url, underline=True))
            self.console.print(text, soft_wrap=True)
        else:
            self._plain(shown(url))

    def _plain(self, text: str) -> None:
        encoding = self.console.encoding
        said = text.encode(encoding, "backslashreplace").decode(encoding)
        self.console.print(Text(said), soft_wrap=True)


def _local(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M %Z")
