"""Server-sent events out of a stream of bytes, however it is cut into pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST_BYTES = 8_000_000
"""Of one event, or of anything else between two empty lines."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """An event that does not come to an end."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. ``id`` is the last that was given, by this event or an earlier one."""

    name: str
    data: str
    id: str | None


class EventParser:
    """Takes bytes and gives the events that are complete. What is cut off in the middle never counts."""

    __slots__ = ("_after_cr", "_data", "_id", "_name", "_partial", "_size", "_started", "retry")

    def __init__(self) -> None:
        self.retry: float | None = None
        """After how many seconds the server wants to see us again, once it has said so."""
        self._partial: list[bytes] = []
        self._after_cr = False
        self._started = False
        self._id: str | None = None
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """The events that this piece completes. Raises `EventTooLong`."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the other half of a line's end
        if not chunk:
            return
        self._after_cr = chunk.endswith(b"\r")
        *lines, rest = _LINE_END.split(chunk)
        if lines:
            lines[0] = b"".join(self._partial) + lines[0]
            self._partial.clear()
        if rest:
            self._partial.append(rest)
        self._grow(len(chunk))
        for line in lines:
            if not self._started:
                self._started, line = True, line.removeprefix(_BOM)
            if line:
                self._field(line)
            else:
                self._size = len(rest)
                yield from self._complete()

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MOST_BYTES:
            raise EventTooLong

    def _field(self, line: bytes) -> None:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value[:12]) / 1000

    def _complete(self) -> Iterator[ServerEvent]:
        name, data = self._name, self._data
        self._name, self._data = "", []
        if data:
            yield ServerEvent(name or "message", "\n".join(data), self._id)
