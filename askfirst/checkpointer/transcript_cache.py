"""Decoded beginnings of long transcripts: a transcript only grows, so each message is decoded once.

A row that somebody changes in the table by hand is seen by those who have not read it before.

All who load a thread get the same messages. Those are frozen, but not the JSON in them, such as a call's arguments:
that is looked at each time, and what somebody has changed is decoded again for whoever comes next.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from askfirst.ids import birth_of
from askfirst.messages import Message, Value
from askfirst.store.rows import Loaded

KEPT_BYTES = 32 * 2**20
"""About how much memory may be spent on this."""
SHORT = 50
"""A transcript below this length is decoded as quickly as it is found."""
_PER_MESSAGE = 1500  # what a decoded message takes beside its text


@dataclass(frozen=True, slots=True)
class Known:
    """The beginning of a transcript: all before what the model said last, where no call can be open."""

    created_at: int
    fence: int
    messages: list[Message]
    loose: list[dict[str, Any]]
    """What is in them that can be changed."""
    seal: bytes
    """What that was like when it was decoded."""
    last: str
    """The last of the messages, as it is stored."""
    size: int

    @property
    def since(self) -> int:
        """From which place on to read: one is read again, to see that this is the same thread."""
        return len(self.messages) - 1

    def is_of(self, loaded: Loaded) -> bool:
        """Whether the thread is the one that was known, and not one that has its name by now."""
        return (
            birth_of(loaded.fence) == birth_of(self.fence)
            and loaded.fence >= self.fence
            and loaded.created_at == self.created_at
            and loaded.bodies[:1] == [self.last]
        )

    @property
    def is_intact(self) -> bool:
        """Whether the messages are as they were decoded: nobody to whom they were handed has changed any."""
        try:
            return _fingerprint(self.loose) == self.seal
        except ValueError:  # there is something in it now that is no JSON
            return False


class Transcripts:
    """The long ones that were read last, as many as fit."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._size = 0

    def of(self, thread_id: str) -> Known | None:
        """What is known of a thread's transcript."""
        known = self._known.get(thread_id)
        if known is None:
            return None
        if not known.is_intact:
            self.forget(thread_id)
            return None
        self._known.move_to_end(thread_id)
        return known

    def forget(self, thread_id: str) -> None:
        """Know nothing of a thread."""
        known = self._known.pop(thread_id, None)
        if known is not None:
            self._size -= known.size

    def clear(self) -> None:
        """Know nothing any more."""
        self._known.clear()
        self._size = 0

    def note(self, thread_id: str, messages: Sequence[Message], loaded: Loaded, known: Known | None) -> None:
        """Remember a transcript that was just read, from where it was ``known`` to."""
        length = _closed(messages)
        start = 0 if known is None else len(known.messages)
        if length < SHORT or length <= start:
            return
        new = loaded.bodies[start - loaded.since : length - loaded.since]
        size = (0 if known is None else known.size) + sum(map(len, new)) + _PER_MESSAGE * len(new)
        self.forget(thread_id)
        if size <= KEPT_BYTES:
            loose = [it for message in messages[start:length] for it in _loose(message)]
            seal = _fingerprint(loose)
            if known is not None:
                loose, seal = known.loose + loose, known.seal + seal
            kept = list(messages[:length])
            self._known[thread_id] = Known(loaded.created_at, loaded.fence, kept, loose, seal, new[-1], size)
            self._size += size
        while self._size > KEPT_BYTES:
            self.forget(next(iter(self._known)))


def _loose(value: Value) -> Iterator[dict[str, Any]]:
    """The JSON objects in a message, or in a part of one."""
    if value.__pydantic_extra__:
        yield value.__pydantic_extra__
    for field in value.__dict__.values():
        if field.__class__ is dict:
            yield field
        elif field.__class__ is tuple:
            for part in field:
                yield from _loose(part)
        elif isinstance(field, Value):
            yield from _loose(field)


_MARSHALLED_ALIKE = 2  # the last version that writes equal values alike, however many refer to them
_BEFORE_ITEMS = len(marshal.dumps([], _MARSHALLED_ALIKE))


def _fingerprint(loose: list[dict[str, Any]]) -> bytes:
    """A fingerprint of JSON objects that concatenates: two lists' fingerprints make that of both together."""
    return marshal.dumps(loose, _MARSHALLED_ALIKE)[_BEFORE_ITEMS:]


def _closed(messages: Sequence[Message]) -> int:
    """How many messages come before what the model said last."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "assistant":
            return place
    return 0
