"""Transcripts that were read before: they only ever grow, so what was decoded once need not be again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from assent.messages import Message
from assent.store.rows import Loaded

KEPT_BYTES = 32 * 2**20
"""About how much memory may be spent on this."""
SHORT = 50
"""A transcript below this length is decoded as quickly as it is found."""
_PER_MESSAGE = 1500  # what a decoded message takes beside its text


@dataclass(frozen=True, slots=True)
class Known:
    """The beginning of a transcript: all before what the model said last, where no call can be open."""

    created_at: int
    messages: list[Message]
    last: str
    """The last of them, as it is stored."""
    size: int

    @property
    def since(self) -> int:
        """From which place on to read: one is read again, to see that this is the same thread."""
        return len(self.messages) - 1

    def is_of(self, loaded: Loaded) -> bool:
        """Whether the thread is the one that was known, and not one that has its name by now."""
        return loaded.created_at == self.created_at and loaded.bodies[:1] == [self.last]


class Transcripts:
    """The long ones that were read last, as many as fit."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._size = 0

    def of(self, thread_id: str) -> Known | None:
        """What is known of a thread's transcript."""
        known = self._known.get(thread_id)
        if known is not None:
            self._known.move_to_end(thread_id)
        return known

    def forget(self, thread_id: str) -> None:
        """Know nothing of a thread."""
        known = self._known.pop(thread_id, None)
        if known is not None:
            self._size -= known.size

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
            self._known[thread_id] = Known(loaded.created_at, list(messages[:length]), new[-1], size)
            self._size += size
        while self._size > KEPT_BYTES:
            self.forget(next(iter(self._known)))


def _closed(messages: Sequence[Message]) -> int:
    """How many messages come before what the model said last."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "assistant":
            return place
    return 0
