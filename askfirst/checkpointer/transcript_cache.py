"""A cache of decoded messages: the beginnings of long transcripts.

A transcript is append-only, so each message is decoded once per process. If a row is changed in the table by hand,
processes that have cached it do not notice. All loads of a thread share the same messages. Messages are frozen, but
the JSON in them (such as a call's arguments) is not. So a fingerprint of that JSON is compared at each load. If it
has changed, the transcript is decoded again.
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
"""About how much memory the cache may take."""
SHORT = 50
"""Shorter transcripts are not cached: decoding them is as quick as the lookup."""
_PER_MESSAGE = 1500  # bytes of a decoded message besides its text


@dataclass(frozen=True, slots=True)
class CachedTranscript:
    """The cached beginning of a transcript: the messages before the last assistant message. All calls in them have
    results.
    """

    created_at: int
    fence: int
    messages: list[Message]
    mutable: list[dict[str, Any]]
    """The mutable JSON objects in the messages."""
    fingerprint: bytes
    """The fingerprint of ``mutable`` when it was decoded."""
    last: str
    """The stored JSON of the last message."""
    size: int

    @property
    def since(self) -> int:
        """The index of the first message to read from the store. The last cached one is read again, to compare it."""
        return len(self.messages) - 1

    def matches(self, loaded: Loaded) -> bool:
        """Whether the loaded thread is the one that was cached, and not a new thread with the same id."""
        return (
            birth_of(loaded.fence) == birth_of(self.fence)
            and loaded.fence >= self.fence
            and loaded.created_at == self.created_at
            and loaded.bodies[:1] == [self.last]
        )

    @property
    def is_intact(self) -> bool:
        """Whether the JSON in the messages is unchanged since they were decoded."""
        try:
            return _fingerprint(self.mutable) == self.fingerprint
        except ValueError:  # a value was put into it that is not JSON
            return False


class TranscriptCache:
    """The cache of recently read long transcripts, limited by `KEPT_BYTES` (least recently used go first)."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, CachedTranscript] = OrderedDict()
        self._size = 0

    def get(self, thread_id: str) -> CachedTranscript | None:
        """The cached beginning of a thread's transcript."""
        known = self._known.get(thread_id)
        if known is None:
            return None
        if not known.is_intact:
            self.forget(thread_id)
            return None
        self._known.move_to_end(thread_id)
        return known

    def forget(self, thread_id: str) -> None:
        """Remove a thread from the cache."""
        known = self._known.pop(thread_id, None)
        if known is not None:
            self._size -= known.size

    def clear(self) -> None:
        """Empty the cache."""
        self._known.clear()
        self._size = 0

    def add(
        self, thread_id: str, messages: Sequence[Message], loaded: Loaded, known: CachedTranscript | None
    ) -> None:
        """Cache a transcript that was just read; ``known`` is the part that was cached before."""
        length = _resolved_length(messages)
        start = 0 if known is None else len(known.messages)
        if length < SHORT or length <= start:
            return
        new = loaded.bodies[start - loaded.since : length - loaded.since]
        size = (0 if known is None else known.size) + sum(map(len, new)) + _PER_MESSAGE * len(new)
        self.forget(thread_id)
        if size <= KEPT_BYTES:
            mutable = [it for message in messages[start:length] for it in _mutable_json(message)]
            fingerprint = _fingerprint(mutable)
            if known is not None:
                mutable, fingerprint = known.mutable + mutable, known.fingerprint + fingerprint
            kept = list(messages[:length])
            self._known[thread_id] = CachedTranscript(
                loaded.created_at, loaded.fence, kept, mutable, fingerprint, new[-1], size
            )
            self._size += size
        while self._size > KEPT_BYTES:
            self.forget(next(iter(self._known)))


def _mutable_json(value: Value) -> Iterator[dict[str, Any]]:
    """The JSON objects in a message, or in a part of one."""
    if value.__pydantic_extra__:
        yield value.__pydantic_extra__
    for field in value.__dict__.values():
        if field.__class__ is dict:
            yield field
        elif field.__class__ is tuple:
            for part in field:
                yield from _mutable_json(part)
        elif isinstance(field, Value):
            yield from _mutable_json(field)


_MARSHALLED_ALIKE = 2  # marshal's last version without references, where equal values always give equal bytes
_BEFORE_ITEMS = len(marshal.dumps([], _MARSHALLED_ALIKE))


def _fingerprint(mutable: list[dict[str, Any]]) -> bytes:
    """A fingerprint of JSON objects. The fingerprints of two lists, concatenated, are the fingerprint of both lists
    together."""
    return marshal.dumps(mutable, _MARSHALLED_ALIKE)[_BEFORE_ITEMS:]


def _resolved_length(messages: Sequence[Message]) -> int:
    """The number of messages before the last assistant message: all calls in them have results."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "assistant":
            return place
    return 0
