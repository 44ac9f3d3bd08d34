"""A link as a QR code in a terminal, for the phone in one's other hand."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from assent.errors import MissingExtra

_BORDER = 2
_HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
_DARK_ON_LIGHT = "black on bright_white"


def print_qr(console: Console, text: str) -> bool:
    """Print a text as a QR code; False, and nothing is printed, where it could not be read.

    It needs a terminal with colours and Unicode that is wide enough.
    """
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
