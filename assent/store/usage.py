"""What each key uses: its open cases, the bytes that are stored for it, how many it opened lately.

The numbers are kept with what they count, in the same transaction, so that nobody ever counts cases to know them.
A key's row is also its place in the queue of callbacks: it says when the next one is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import BigInteger, case, insert, select, update

from assent.errors import OverBudget
from assent.store.budget_tables import usage
from assent.store.statement import Statement, Transaction, param
from assent.store.windows import Window, read_used, write_used

_U = usage.c
_BIG = BigInteger()
_THIS = _U.key_id == param("key_id")
LOCKED = Statement(select(_U.open_cases, _U.stored_bytes, _U.opened).where(_THIS).with_for_update())
INSERT = Statement(
    insert(usage)
    .values({name: param(name) for name in ("key_id", "open_cases", "stored_bytes", "opened", "callback_at")})
    .inline()
)
OPENED = Statement(
    update(usage)
    .where(_THIS)
    .values({name: param(name) for name in ("open_cases", "stored_bytes", "opened")})
)
CHANGED = Statement(
    update(usage)
    .where(_THIS)
    .values(
        open_cases=_U.open_cases - param("closed", _BIG), stored_bytes=_U.stored_bytes + param("more", _BIG)
    )
)
_SOONER = case((_U.callback_at < param("due_at", _BIG), _U.callback_at), else_=param("due_at", _BIG))
CALLBACK_DUE = Statement(update(usage).where(_THIS).values(callback_at=_SOONER))
OPEN_MOMENT = 60_000
"""Milliseconds after which to come again where other cases have to end first."""


class Allowance(NamedTuple):
    """What a key may use."""

    open_cases: int
    stored_bytes: int
    cases: Window
    """How many it may open."""


def size_of(body: str, facts: str, draft: str | None) -> int:
    """How many bytes a case takes up."""
    return sum(len(text.encode()) for text in (body, facts, draft or ""))


def opened(key_id: str, size: int, now: int, allowed: Allowance) -> Transaction[None]:
    """Count a case that a key opens; raises `OverBudget`."""
    rows = yield LOCKED, {"key_id": key_id}
    open_cases, stored, text = rows[0] if rows else (0, 0, "[]")
    lately = read_used(text)
    if open_cases >= allowed.open_cases:
        raise OverBudget("open_cases", OPEN_MOMENT)
    if stored + size > allowed.stored_bytes:
        raise OverBudget("stored_bytes", None)
    wait = allowed.cases.wait(lately, now)
    if wait is not None:
        raise OverBudget("cases_per_hour", wait)
    values = {
        "key_id": key_id,
        "open_cases": max(0, open_cases) + 1,
        "stored_bytes": max(0, stored) + size,
        "opened": write_used(allowed.cases.after(lately, now)),
        "callback_at": None,
    }
    # A race to be first ends in a unique violation, and is run again.
    yield (OPENED if rows else INSERT), values


def changed(key_id: str | None, *, closed: int, more: int) -> Transaction[None]:
    """Count that some of a key's cases have ended, or that more is stored for it, or less."""
    if key_id is not None and (closed or more):
        yield CHANGED, {"key_id": key_id, "closed": closed, "more": more}


def callback_due(key_id: str | None, due_at: int) -> Transaction[None]:
    """Let whoever makes callbacks look at a key's by then."""
    at = {"key_id": key_id or "", "due_at": due_at}
    if not (yield CALLBACK_DUE, at):
        fresh = {"key_id": key_id or "", "open_cases": 0, "stored_bytes": 0, "opened": "[]"}
        yield INSERT, {**fresh, "callback_at": due_at}


def purged(sizes: Mapping[str, int]) -> Transaction[None]:
    """Count that so many bytes of each key are stored no longer."""
    for key_id in sorted(sizes):
        yield from changed(key_id, closed=0, more=-sizes[key_id])
