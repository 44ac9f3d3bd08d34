"""The audit trail's rows: each act is one, written in the transaction that does it.

A row has a hash of its own content when it is written, and waits for nobody. `chain` links it behind the others
later. Whoever changes something appends to the trail in the same transaction.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from sqlalchemy import insert

from assent.digests import canonical_json
from assent.errors import StoreError
from assent.store import service_tables
from assent.store.rows import encode_text
from assent.store.statement import Statement, Transaction, param

ACT_LENGTH = 64
CLOCK = "clock"
"""The actor of what happens because its time has come."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that was done: ``act`` (``"case.answered"``) by ``actor`` to ``subject``, an id, at ``at``.

    ``actor`` is whom we know: a verified person, a key, the operating system's account. A name that somebody
    only gave stands in ``detail``, as ``claimed``. ``detail`` is JSON, and no place for answers, tokens or other
    secrets: it is kept for good. Of those it has hashes.
    """

    act: str
    subject: str
    actor: str
    at: int
    """Milliseconds since 1970."""
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Act(NamedTuple):
    """A row that is written and not linked yet, as it is stored."""

    act_id: str
    """When it was written, in nanoseconds, and a random number: rows are linked in this order."""
    about: str
    at: int
    actor: str
    act: str
    subject: str
    detail: str
    content: str
    """The hash of all this but ``about``."""


APPEND = Statement(insert(service_tables.acts).values({name: param(name) for name in Act._fields}).inline())


def append(entries: Sequence[Entry]) -> Transaction[None]:
    """Append to the trail, by ``yield from``: one statement, however many there are."""
    if not entries:
        return
    begin = time.time_ns()
    rows = [_row(entry, begin + place)._asdict() for place, entry in enumerate(entries)]
    yield APPEND, rows if len(rows) > 1 else rows[0]


def about(subject: str) -> str:
    """By what an index finds the rows of a subject, which may be of any length."""
    return hashlib.sha256(subject.encode()).hexdigest()[:32]


def digest(facts: Any) -> str:
    """SHA-256 (hex) over the canonical JSON of something."""
    return hashlib.sha256(canonical_json(facts)).hexdigest()


def claimed(by: str | None, actor: str) -> dict[str, str]:
    """What a row's detail says of a name that somebody gave; nothing if it is the actor's."""
    return {} if by is None or by == actor else {"claimed": by}


def _row(entry: Entry, nanoseconds: int) -> Act:
    if not 0 < len(entry.act) <= ACT_LENGTH or not entry.act.isascii():
        raise StoreError(f"an act is named in 1 to {ACT_LENGTH} ASCII characters, not {entry.act[:80]!r}")
    try:
        actor, subject = cast(str, encode_text(entry.actor)), cast(str, encode_text(entry.subject))
        detail = canonical_json(dict(entry.detail)).decode()
    except ValueError as error:
        raise StoreError(f"audit of {entry.act}: this cannot be kept: {error}") from None
    act_id = f"{nanoseconds:016x}{secrets.token_hex(8)}"
    # What `digest` makes of these six by their names, without encoding any of them again.
    facts = (
        f'{{"act":{encode_text(entry.act)},"act_id":"{act_id}","actor":{actor},"at":{entry.at},"detail":{detail},'
        f'"subject":{subject}}}'
    )
    content = hashlib.sha256(facts.encode()).hexdigest()
    return Act(act_id, about(entry.subject), entry.at, actor, entry.act, subject, detail, content)
