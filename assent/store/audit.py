"""The audit trail: rows that are only ever appended, each bound to the one before it by a hash.

Whoever changes something appends to the trail in the same transaction, as its last act: from there to the
commit it holds the lock that every other writer waits for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from pydantic_core import from_json
from sqlalchemy import Integer, exists, insert, literal_column, select, update

from assent.digests import canonical_json
from assent.errors import StoreError
from assent.store import service_tables
from assent.store.rows import decode_text, encode_text
from assent.store.statement import Statement, Transaction, param

GENESIS = "0" * 64
"""What the first row has for the hash before it."""
ACT_LENGTH = 64

_A, _H = service_tables.audit.c, service_tables.audit_head.c
_ONE = literal_column("1", Integer)
_ONLY = _H.head_id == _ONE
_COLUMNS = ("seq", "at", "actor", "act", "subject", "detail", "previous", "hash")

HEAD = Statement(select(_H.seq, _H.hash).where(_ONLY))
LOCKED_HEAD = Statement(select(_H.seq, _H.hash).where(_ONLY).with_for_update())
FIRST_HEAD = Statement(
    insert(service_tables.audit_head).from_select(
        ["head_id", "seq", "hash"],
        select(_ONE, literal_column("0", Integer), param("hash", _H.hash.type)).where(
            ~exists(select(_ONE).where(_ONLY))
        ),
    )
)
MOVE_HEAD = Statement(
    update(service_tables.audit_head).where(_ONLY).values(seq=param("seq"), hash=param("hash"))
)
APPEND = Statement(insert(service_tables.audit).values({name: param(name) for name in _COLUMNS}).inline())
PAGE = Statement(
    select(*(_A[name] for name in _COLUMNS))
    .where(_A.seq > param("after"))
    .order_by(_A.seq)
    .limit(param("limit", _A.seq.type))
)


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that was done: ``act`` (``"case.answered"``) by ``actor`` to ``subject``, an id, at ``at``.

    ``detail`` is JSON, and no place for answers, tokens or other secrets: it is kept for good.
    """

    act: str
    subject: str
    actor: str
    at: int
    """Milliseconds since 1970."""
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])


class AuditRow(NamedTuple):
    """A row of the trail, as it is stored."""

    seq: int
    at: int
    actor: str
    act: str
    subject: str
    detail: str
    previous: str
    hash: str

    @property
    def facts(self) -> dict[str, Any]:
        """What the hash is taken over; raises `ValueError` if a column is not as it was written."""
        facts: dict[str, Any] = {
            "seq": self.seq,
            "at": self.at,
            "actor": decode_text(self.actor),
            "act": self.act,
            "subject": decode_text(self.subject),
            "detail": from_json(self.detail),
            "previous": self.previous,
        }
        written = encode_text(facts["actor"]), encode_text(facts["subject"]), _detail(facts["detail"])
        if written != (self.actor, self.subject, self.detail):
            raise ValueError("a column is not as it was written")
        return facts


class Head(NamedTuple):
    """Where the chain ends: the number of its last row, which is how many there are, and that row's hash."""

    seq: int
    hash: str


class AuditPage(NamedTuple):
    """Rows of the trail, and its head just before and just after they were read (None: there is none)."""

    before: Head | None
    rows: list[AuditRow]
    after: Head | None


def append(entries: Sequence[Entry]) -> Transaction[None]:
    """Append to the trail; to be the last part of a transaction, by ``yield from``."""
    if not entries:
        return
    head = yield LOCKED_HEAD, {}
    if not head:
        yield FIRST_HEAD, {"hash": GENESIS}  # a race for it ends in a unique violation, and is run again
        head = yield LOCKED_HEAD, {}
    rows = [row._asdict() for row in _chained(Head(*head[0]), entries)]
    yield APPEND, rows if len(rows) > 1 else rows[0]
    yield MOVE_HEAD, rows[-1]


def page(after: int, limit: int) -> Transaction[AuditPage]:
    """Rows behind one, in order."""
    before = yield from _head()
    rows = yield PAGE, {"after": after, "limit": limit}
    return AuditPage(before, [AuditRow(*row) for row in rows], (yield from _head()))


def digest(facts: Mapping[str, Any]) -> str:
    """The hash of a row: SHA-256 (hex) over the canonical JSON of everything else in it."""
    return hashlib.sha256(canonical_json(facts)).hexdigest()


def _head() -> Transaction[Head | None]:
    rows = yield HEAD, {}
    return Head(*rows[0]) if rows else None


def _chained(head: Head, entries: Sequence[Entry]) -> Iterator[AuditRow]:
    seq, previous = head
    for entry in entries:
        seq += 1
        row = _row(seq, entry, previous)
        yield row
        previous = row.hash


def _row(seq: int, entry: Entry, previous: str) -> AuditRow:
    if not 0 < len(entry.act) <= ACT_LENGTH or not entry.act.isascii():
        raise StoreError(f"an act is named in 1 to {ACT_LENGTH} ASCII characters, not {entry.act[:80]!r}")
    try:
        actor, subject = cast(str, encode_text(entry.actor)), cast(str, encode_text(entry.subject))
        detail = _detail(dict(entry.detail))
    except ValueError as error:
        raise StoreError(f"audit of {entry.act}: this cannot be kept: {error}") from None
    row = AuditRow(seq, entry.at, actor, entry.act, subject, detail, previous, "")
    return row._replace(hash=digest(row.facts))


def _detail(detail: Any) -> str:
    return canonical_json(detail).decode()
