"""Effects: the ledger of tool bodies, begun before they run and ended with their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import case, insert, literal, null, select, update

from assent.messages import ToolCall
from assent.store import tables
from assent.store.statement import Statement, Transaction, param, upsert

_E = tables.effects.c
_THREAD = _E.thread_id == param("thread_id")

START = upsert(
    tables.effects,
    update=("tool_name", "digest", "effect", "attempt", "started_at", "ended_at", "granted"),
)
END = Statement(
    update(tables.effects)
    .where(_THREAD, _E.tool_call_id == param("tool_call_id"))
    .values(ended_at=param("now"))
)

_COPIED = ("tool_call_id", "tool_name", "digest", "attempt", "started_at")
# On another thread a call has another key, so what is idempotent here is not there.
_ELSEWHERE = case((_E.effect == literal("none"), _E.effect), else_=literal("once"))
COPY = Statement(
    insert(tables.effects).from_select(
        ["thread_id", *_COPIED, "effect", "ended_at"],
        select(param("new_thread_id", tables.ID), *(_E[name] for name in _COPIED), _ELSEWHERE, null()).where(
            _THREAD, _E.tool_call_id == param("tool_call_id")
        ),
    )
)


def in_doubt(call: ToolCall) -> dict[str, Any]:
    """The row of a call that may have taken effect, though no body of it was begun on this thread."""
    return {
        "tool_call_id": call.id,
        "tool_name": call.name,
        "digest": "",
        "effect": "once",
        "attempt": 1,
    }


def start(begun: Sequence[Mapping[str, Any]], key: Mapping[str, Any], now: int) -> Transaction[None]:
    """Note that bodies are about to begin, for the first time or again."""
    fresh = {"thread_id": key["thread_id"], "started_at": now, "ended_at": None, "granted": None}
    rows = [{**fresh, **row} for row in begun]
    if rows:
        yield START, rows if len(rows) > 1 else rows[0]


def end(tool_call_ids: Sequence[str], key: Mapping[str, Any], now: int) -> Transaction[None]:
    """Note that bodies have come to their end."""
    rows = [{"thread_id": key["thread_id"], "tool_call_id": it, "now": now} for it in tool_call_ids]
    if rows:
        yield END, rows if len(rows) > 1 else rows[0]
