"""Reads for the page of a case: what came of its call, what was done before it, and its thread's latest round."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import and_, select

from askfirst.store import tables
from askfirst.store.case_tables import cases, keys
from askfirst.store.rows import GATE_RUN, decode_text
from askfirst.store.statement import Statement, Transaction, param

_E, _M = tables.effects.c, tables.messages.c

EFFECT = Statement(
    select(_E.attempt, _E.started_at, _E.ended_at).where(
        _E.thread_id == param("thread_id"), _E.tool_call_id == param("tool_call_id")
    )
)
LATEST = Statement(
    select(_M.body)
    .where(_M.thread_id == param("thread_id"))
    .order_by(_M.seq.desc())
    .limit(param("limit", _M.seq.type))
)
KEY_NAME = Statement(select(keys.c.name).where(keys.c.key_id == param("key_id")))


AGENT_ID = Statement(
    select(tables.runs.c.run_id, tables.runs.c.agent_id)
    .select_from(
        tables.threads.join(
            tables.runs,
            and_(
                tables.runs.c.thread_id == tables.threads.c.thread_id,
                tables.runs.c.run_id == tables.threads.c.run_id,
            ),
        )
    )
    .where(tables.threads.c.thread_id == param("thread_id"))
)


class EffectRow(NamedTuple):
    """What the ledger says of a call's body; ``ended_at`` is None while it runs, or if its end is not known."""

    attempt: int
    started_at: int
    ended_at: int | None


def effect(thread_id: str, tool_call_id: str) -> Transaction[EffectRow | None]:
    """The ledger's entry of a call; None if its body has not begun."""
    rows = yield EFFECT, {"thread_id": thread_id, "tool_call_id": tool_call_id}
    return EffectRow(*rows[0]) if rows else None


def latest_messages(thread_id: str, limit: int) -> Transaction[list[str]]:
    """The last messages of a thread, oldest first."""
    rows = yield LATEST, {"thread_id": thread_id, "limit": limit}
    return [body for (body,) in reversed(list(rows))]


def key_name(key_id: str) -> Transaction[str | None]:
    """The name of an API key."""
    rows = yield KEY_NAME, {"key_id": key_id}
    return decode_text(rows[0][0]) if rows else None


def agent_id(thread_id: str) -> Transaction[str | None]:
    """The id of the agent of a thread's current run; None if no agent of ours runs there."""
    rows = yield AGENT_ID, {"thread_id": thread_id}
    if not rows or rows[0][0] == GATE_RUN:
        return None
    return str(rows[0][1])


_C, _G = cases.c, tables.continuations.c
PULSE = Statement(
    select(
        _C.version,
        _C.status,
        _C.held_until,
        _E.attempt,
        _E.started_at,
        _E.ended_at,
        _G.write_id,
    )
    .select_from(
        cases.outerjoin(
            tables.effects, and_(_E.thread_id == _C.thread_id, _E.tool_call_id == param("tool_call_id"))
        ).outerjoin(tables.continuations, _G.thread_id == _C.thread_id)
    )
    .where(_C.case_id == param("case_id"))
)

Pulse = tuple[int | str | None, ...]
"""A case's numbers, of which one differs whenever its page has something new to show."""


def pulse(case_id: str, tool_call_id: str) -> Transaction[Pulse | None]:
    """The numbers by which a change is noticed, without reading the case itself; None if it is gone.

    ``tool_call_id`` is that of the call which the case is about; empty if there is none.
    """
    rows = yield PULSE, {"case_id": case_id, "tool_call_id": tool_call_id}
    return tuple(rows[0]) if rows else None
