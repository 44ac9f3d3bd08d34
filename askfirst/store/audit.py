"""The audit trail's rows: each act is one, written in the transaction that does it.

A row is written with a hash of its own content, without a lock. `audit_chain` links it into the hash chain later.
Every change appends its row in the same transaction.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic_core import from_json, to_json
from sqlalchemy import insert

from askfirst.account import os_account
from askfirst.digests import canonical_json
from askfirst.errors import StoreError
from askfirst.store import case_tables
from askfirst.store.rows import Row, encode_text
from askfirst.store.statement import Statement, Transaction, param

if TYPE_CHECKING:
    from askfirst.store.case_rows import CaseRow
    from askfirst.store.rows import RequestRow

ACT_LENGTH = 64
CLOCK = "clock"
"""The actor of time-outs and reminders."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An act: ``act`` (``"case.answered"``) by ``actor`` to ``subject``, an id, at ``at``.

    ``actor`` is verified: a person, a key, the operating system's account. An unverified name is in ``detail``, as
    ``claimed``. ``detail`` is JSON that is kept for good: it has hashes of answers, and no answers, tokens or
    other secrets.
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


APPEND = Statement(insert(case_tables.acts).values({name: param(name) for name in Act._fields}).inline())


def append(entries: Sequence[Entry]) -> Transaction[None]:
    """Append acts to the trail with one statement. It is part of a transaction: call it with ``yield from``."""
    if not entries:
        return
    begin = time.time_ns()
    rows = [_row(entry, begin + place)._asdict() for place, entry in enumerate(entries)]
    yield APPEND, rows if len(rows) > 1 else rows[0]


def about(subject: str) -> str:
    """A hash of the subject, which may be of any length, for an index."""
    return hashlib.sha256(subject.encode()).hexdigest()[:32]


def digest(facts: Any) -> str:
    """SHA-256 (hex) over the canonical JSON of some facts."""
    return hashlib.sha256(canonical_json(facts)).hexdigest()


def claimed(by: str | None, actor: str) -> dict[str, str]:
    """The detail of an unverified name; empty if it is the actor's."""
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
    # As `digest` of these six fields, without encoding any of them again.
    facts = (
        f'{{"act":{encode_text(entry.act)},"act_id":"{act_id}","actor":{actor},"at":{entry.at},"detail":{detail},'
        f'"subject":{subject}}}'
    )
    content = hashlib.sha256(facts.encode()).hexdigest()
    return Act(act_id, about(entry.subject), entry.at, actor, entry.act, subject, detail, content)


# The rows about requests and cases, with hashes of what was asked, shown and answered.
#
# The hashes are taken over the JSON as it was encoded, before anything is encrypted.


def sha256_of(*parts: Any) -> str:
    """SHA-256 (hex) over the parts as a JSON array without spaces."""
    return hashlib.sha256(to_json(parts)).hexdigest()


def content_sha256(row: Row) -> str:
    """The hash of what is asked: of a request's row, or of what its row is made from."""
    return sha256_of(row["kind"], row["payload"], row["digest"], row["created_at"], row["expires_at"])


def result_sha256(row: Row) -> str:
    """The hash of how a request was settled, and by whom: of its row, or of a statement's parameters.

    The write's id, a random number, is a salt: without it a short answer could be guessed from its hash.
    """
    names = ("write_id", "status", "answer", "reason", "answered_by", "via")
    return sha256_of(*(row[name] for name in names))


def request_opened(row: Row, now: int) -> Entry:
    """A request is opened."""
    detail = {"question_id": row["question_id"], "kind": row["kind"], "content_sha256": content_sha256(row)}
    if row["digest"] is not None:
        detail["digest"] = row["digest"]
    if row["run_id"] is not None:
        detail["run_id"] = row["run_id"]
    return Entry("request.opened", row["thread_id"], os_account(), now, detail)


def request_settled(params: Row, asked: RequestRow | None = None, actor: str | None = None) -> Entry:
    """A request is settled, as the statement's parameters say.

    ``asked`` is the request as it stood, where it was read. ``actor`` is who is known to have done it: else the
    account that runs this process, or the clock for a time-out.
    """
    status = params["status"]
    who = CLOCK if status == "timed_out" else actor or os_account()
    detail: dict[str, Any] = {
        "question_id": params["question_id"],
        "result_sha256": result_sha256(params),
        **claimed(params["answered_by"], who),
    }
    if params["via"] is not None:
        detail["via"] = params["via"]
    if params.get("shown") is not None:
        detail["shown"] = params["shown"]
    if asked is not None:
        detail["content_sha256"] = content_sha256(asked._asdict())
        detail["round"] = asked.round
        detail["kind"] = asked.kind
        if asked.kind == "approve" and params["answer"] is not None:
            detail["decision"] = from_json(params["answer"]).get("decision")
    return Entry(f"request.{status}", params["thread_id"], who, params["now"], detail)


def request_withdrawn(thread_id: str, question_id: str, now: int) -> Entry:
    """A request is deleted with its thread, unanswered."""
    return Entry("request.withdrawn", thread_id, os_account(), now, {"question_id": question_id})


def case_content_sha256(row: CaseRow) -> str:
    """The hash of what a case asks and shows, and how it may be answered."""
    names = ("type", "body", "key_id", "thread_id", "question_id", "round", "created_at", "expires_at")
    return sha256_of(*(getattr(row, name) for name in names))


def case_result_sha256(row: CaseRow) -> str:
    """The hash of how a case ended, and by whom: its facts, but for the case that follows it, which comes later.

    Among them is a random ``salt``: without it a short answer could be guessed from its hash.
    """
    facts = from_json(row.facts)
    facts.pop("next_case_id", None)
    return sha256_of(row.status, row.ended_at, sorted(facts.items()))


def salted(row: CaseRow) -> CaseRow:
    """A case that ends, with the random number that its result is hashed with."""
    facts = {**from_json(row.facts), "salt": secrets.token_hex(16)}
    return row._replace(facts=to_json(facts).decode())
