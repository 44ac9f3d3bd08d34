"""The fields that a browser posts, read in memory that is no multiple of what it sent."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

_PIECE = 65_536


def posted_fields(raw: bytes, *, most: int) -> dict[str, list[str]]:
    """The values of each field, blank ones too; raises ``ValueError`` if there are more than ``most``."""
    if raw.count(b"&") >= most:
        raise ValueError("too many fields")
    fields: dict[str, list[str]] = {}
    for pair in raw.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            fields.setdefault(_unquoted(name), []).append(_unquoted(value))
    return fields


def _unquoted(text: bytes) -> str:
    """A text without its escapes. It is taken piece by piece: an object is made for every escape in one."""
    spaced = text.replace(b"+", b" ")
    pieces: list[bytes] = []
    at = 0
    while at < len(spaced):
        end = at + _PIECE
        escape = spaced.rfind(b"%", end - 2, end) if end < len(spaced) else -1  # one must stay in a piece
        end = end if escape < 0 else escape
        pieces.append(unquote_to_bytes(spaced[at:end]))
        at = end
    return b"".join(pieces).decode("utf-8", "replace")
