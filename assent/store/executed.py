"""Calls that a person let run, and that have run to their end: found in the ledger of effects, noted once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Integer, and_, exists, literal_column, select, update

from assent.store import audit, cases
from assent.store.audit import Entry
from assent.store.case_rows import CaseRow
from assent.store.case_tables import cases as case_table
from assent.store.statement import Statement, Transaction, param
from assent.store.tables import effects

_C, _E = case_table.c, effects.c
_LATER = case_table.alias("later")
_ONE, _ZERO = literal_column("1", Integer), literal_column("0", Integer)


class EndedEffect(NamedTuple):
    """What the ledger says of a tool body that has ended."""

    tool_name: str
    digest: str
    attempt: int
    started_at: int
    ended_at: int


EntryOf = Callable[[CaseRow, EndedEffect], Entry]

_BODY = and_(_E.thread_id == _C.thread_id, _E.tool_call_id == _C.question_id, _E.ended_at.is_not(None))
# A call that was asked about again ran by the last answer, not by those before.
_ASKED_AGAIN = exists(
    select(_ONE).where(
        _LATER.c.thread_id == _C.thread_id,
        _LATER.c.question_id == _C.question_id,
        _LATER.c.round > _C.round,
    )
)
ENDED = Statement(
    select(_C.case_id)
    .select_from(case_table.join(effects, _BODY))
    .where(_C.awaits_effect == _ONE, _C.ended_at >= param("since"), ~_ASKED_AGAIN)
    .limit(param("limit", _C.ended_at.type))
)
EFFECT = Statement(
    select(*(_E[name] for name in EndedEffect._fields)).where(
        _E.thread_id == param("thread_id"),
        _E.tool_call_id == param("question_id"),
        _E.ended_at.is_not(None),
    )
)
NOTED = Statement(
    update(case_table)
    .where(_C.case_id == param("case_id"), _C.awaits_effect == _ONE)
    .values(awaits_effect=_ZERO)
)


def ended(since: int, limit: int) -> Transaction[list[str]]:
    """Cases that ended since then, whose calls have run to their end, and of which nobody has noted it."""
    return [case_id for (case_id,) in (yield ENDED, {"since": since, "limit": limit})]


def note(case_id: str, entry_of: EntryOf) -> Transaction[bool]:
    """Say in the audit trail that a case's call has run to its end; False if that is not so, or was said."""
    row = yield from cases.locked(case_id)
    if row is None or not row.awaits_effect:
        return False
    found = yield EFFECT, row._asdict()
    if not found:
        return False
    yield NOTED, {"case_id": case_id}
    yield from audit.append((entry_of(row, EndedEffect(*found[0])),))
    return True
