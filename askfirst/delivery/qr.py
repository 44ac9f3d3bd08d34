"""A link as a QR code in a terminal, to be opened with a phone."""

from __future__ import annotations

from urllib.parse import urlsplit

try:
    from rich.console import Console
    from rich.text import Text
except ModuleNotFoundError as error:
    from askfirst.errors import MissingExtra

    raise MissingExtra("a QR code in a terminal", "cli") from error

from askfirst.delivery.base import Ended, Notice, Sent
from askfirst.delivery.terminal import TerminalDelivery
from askfirst.errors import MissingExtra
from askfirst.loopback import is_local_url

_BORDER = 2
_HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
_DARK_ON_LIGHT = "black on bright_white"


class QRDelivery:
    """Writes notices as `TerminalDelivery` does, and the link as a QR code below them.

    If a phone could not read the code, such as in a narrow window or a file, only the link is written.
    """

    name = "qr"
    shows_buttons = False

    def __init__(self, console: Console | None = None) -> None:
        self._terminal = TerminalDelivery(console)

    async def send(self, notice: Notice) -> Sent:
        """Write a notice and the QR code of its link."""
        await self._terminal.print(lambda: self._write(notice))
        return Sent(self.name, notice.case_id)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Write how the case ended; the earlier notice stays above."""
        await self._terminal.update(sent, ended)

    def _write(self, notice: Notice) -> None:
        self._terminal.write(notice)
        if notice.review_url is None:
            return
        if is_local_url(notice.review_url):
            host = urlsplit(notice.review_url).hostname
            said = f"A phone cannot reach {host}: use --base-url to give an address that a phone can reach."
            self._terminal.console.print(Text(said), soft_wrap=True)
            return
        print_qr(self._terminal.console, notice.review_url)


def print_qr(console: Console, text: str) -> bool:
    """Print a link as a QR code. Returns False, and prints nothing, if a phone could not use it.

    The terminal must have colours and Unicode and be wide enough, and another device must be able to reach the link.
    """
    if is_local_url(text):
        return False
    try:
        import segno
    except ModuleNotFoundError as error:
        raise MissingExtra("a QR code in a terminal", "cli") from error
    code = segno.make(text, error="l", micro=False)
    rows = [[bool(dark) for dark in row] for row in code.matrix_iter(border=_BORDER)]
    unicode = console.encoding.lower().startswith("utf")
    if not console.is_terminal or console.color_system is None or not unicode:
        return False
    if len(rows) > console.width:
        return False
    if len(rows) % 2:
        rows.append([False] * len(rows[0]))
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        line = "".join(_HALVES[pair] for pair in zip(upper, lower, strict=True))
        console.print(Text(line, _DARK_ON_LIGHT), soft_wrap=True)
    return True
