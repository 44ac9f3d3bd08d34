"""Listing checkpoints, oldest first, by one statement for each way to ask."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, String, and_, literal_column, select, tuple_, union_all

from assent.store import tables
from assent.store.checkpoint_rows import STATES, CheckpointRow, Page
from assent.store.checkpoints import COLUMNS
from assent.store.statement import Statement, Transaction, param

_C = tables.checkpoints.c
_BIG = _C.created_at.type
_PLACE = (_C.created_at, _C.checkpoint_id)
_LIMIT = param("limit", _BIG)
_AFTER = and_(
    _C.created_at >= param("created_at"),  # the index's way in; what follows is the exact place
    tuple_(*_PLACE) > tuple_(param("created_at", _BIG), param("checkpoint_id", tables.ID)),
)


def _in_state(of: Any, state: Any) -> Select[*tuple[Any, ...]]:
    """The oldest in one state: a range of an index."""
    return select(*COLUMNS).where(of, _C.state == state, _AFTER).order_by(*_PLACE).limit(_LIMIT)


def _in_any_state(of: Any) -> Select[*tuple[Any, ...]]:
    """The oldest of the oldest in each state."""
    in_each = [_in_state(of, literal_column(f"'{state}'", String)).subquery() for state in STATES]
    found = union_all(*(select(rows) for rows in in_each)).subquery()
    columns = [found.c[name] for name in CheckpointRow._fields]
    return select(*columns).order_by(found.c.created_at, found.c.checkpoint_id).limit(_LIMIT)


_OF_AGENT = _C.agent_id == param("agent_id")
# Of a thread's few, those of the agent. Said in this way, no database walks through all of the agent's instead.
_OF_THREAD = and_(
    _C.thread_id == param("thread_id"), _C.agent_id.between(param("agent_id"), param("agent_id"))
)
OF_AGENT = Statement(_in_any_state(_OF_AGENT))
OF_AGENT_IN_STATE = Statement(_in_state(_OF_AGENT, param("state")))
OF_THREAD = Statement(_in_any_state(_OF_THREAD))
OF_THREAD_IN_STATE = Statement(_in_state(_OF_THREAD, param("state")))


def listing(page: Page) -> Transaction[list[CheckpointRow]]:
    """A page of an agent's checkpoints, all from one moment."""
    if page.thread_id is None:
        statement = OF_AGENT if page.state is None else OF_AGENT_IN_STATE
    else:
        statement = OF_THREAD if page.state is None else OF_THREAD_IN_STATE
    created_at, checkpoint_id = page.after
    place = {"created_at": created_at, "checkpoint_id": checkpoint_id}
    rows = yield statement, {**page._asdict(), **place}
    return [CheckpointRow(*row) for row in rows]
