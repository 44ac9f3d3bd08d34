"""Transactions on budgets: what keys and addresses use, allowances counted, event streams that are open.

Each process renews its streams (a heartbeat); those of a dead process stop counting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic_core import from_json, to_json
from sqlalchemy import BigInteger, case, delete, func, insert, select, update

from askfirst.errors import OverBudget
from askfirst.store.case_tables import counts, streams, usage
from askfirst.store.statement import Statement, Transaction, param

# Recent uses in a sliding window, as a few numbers however many uses there were.


PARTS = 60
"""The buckets of a window: uses in one bucket count from the first of them."""

Used = Sequence[tuple[int, int]]
"""When, and how much then; oldest first."""


class Window(NamedTuple):
    """What may be used: ``most`` within so many ``milliseconds``, whenever these begin."""

    most: int
    milliseconds: int

    def recent(self, used: Used, now: int) -> list[tuple[int, int]]:
        """The uses within the window. Clocks of several machines differ, so a use may lie in the future."""
        return [(at, amount) for at, amount in used if abs(now - at) < self.milliseconds]

    def wait(self, used: Used, now: int, amount: int = 1) -> int | None:
        """The milliseconds until ``amount`` more may be used; None if it may be used now."""
        recent = self.recent(used, now)
        left = sum(each for _, each in recent) + amount
        if left <= self.most:
            return None
        for at, each in recent:
            left -= each
            if left <= self.most:
                return max(1, at + self.milliseconds - now)
        return self.milliseconds

    def after(self, used: Used, now: int, amount: int = 1) -> list[tuple[int, int]]:
        """The uses within the window, with ``amount`` more used now."""
        recent = self.recent(used, now)
        if recent and abs(now - recent[-1][0]) < self.milliseconds // PARTS:
            at, before = recent.pop()
            return [*recent, (at, before + amount)]
        return [*recent, (now, amount)]


def read_used(text: str) -> list[tuple[int, int]]:
    """The uses in a column."""
    return [(at, amount) for at, amount in from_json(text)]


def write_used(used: Used) -> str:
    """Uses in the form in which a column stores them."""
    return to_json(used).decode()


# Allowances shared by all processes: a use is counted before its outcome is known.


_N = counts.c
LOCKED_COUNT = Statement(select(_N.used).where(_N.subject == param("subject")).with_for_update())
_VALUES = {"used": param("used"), "at": param("at")}
INSERT_COUNT = Statement(insert(counts).values(subject=param("subject"), **_VALUES).inline())
UPDATE_COUNT = Statement(update(counts).where(_N.subject == param("subject")).values(_VALUES))
FORGET_COUNTS = Statement(delete(counts).where(_N.at < param("before")))


class Use(NamedTuple):
    """Something of which so much is to be used."""

    budget: str
    """Its name among the service's budgets."""
    subject: str
    """Whose it is: a hash where it would name a person or a machine."""
    window: Window
    amount: int = 1


class Refused(NamedTuple):
    """The budget that has not enough left, and after how many milliseconds it will."""

    budget: str
    wait: int


def spend_all(uses: Sequence[Use], now: int) -> Transaction[Refused | None]:
    """Count all uses, or none if one exceeds its budget."""
    found: dict[str, list[tuple[int, int]] | None] = {}
    for use in sorted(uses, key=lambda use: use.subject):  # the same order in every transaction: no deadlocks
        rows = yield LOCKED_COUNT, {"subject": use.subject}
        found[use.subject] = read_used(rows[0][0]) if rows else None
    refused = [
        Refused(use.budget, wait)
        for use in uses
        if (wait := use.window.wait(found[use.subject] or (), now, use.amount)) is not None
    ]
    if refused:
        return max(refused, key=lambda each: each.wait)
    for use in uses:
        known = found[use.subject]
        used = use.window.after(known or (), now, use.amount)
        params = {"subject": use.subject, "used": write_used(used), "at": now}
        # A race to be first ends in a unique violation, and is retried.
        yield (INSERT_COUNT if known is None else UPDATE_COUNT), params
    return None


def forget_counts(before: int) -> Transaction[int]:
    """Delete counts without a use since then; returns how many."""
    return (yield FORGET_COUNTS, {"before": before})


# What each key uses: its open cases, the bytes that are stored for it, how many it opened lately.
#
# The numbers are updated in the transactions that change them, so that no query ever counts cases. A key's row is
# also its place in the queue of callbacks: it says when the next one is due.


_U = usage.c
_BIG = BigInteger()
_THIS = _U.key_id == param("key_id")
LOCKED_USAGE = Statement(select(_U.open_cases, _U.stored_bytes, _U.opened).where(_THIS).with_for_update())
INSERT_USAGE = Statement(
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
"""The ``Retry-After`` in milliseconds where other cases have to end first."""


class Allowance(NamedTuple):
    """What a key may use."""

    open_cases: int
    stored_bytes: int
    cases: Window
    """How many it may open."""


def size_of(body: str, facts: str, draft: str | None) -> int:
    """How many bytes a case takes up."""
    return sum(len(text.encode()) for text in (body, facts, draft or ""))


def case_opened(key_id: str, size: int, now: int, allowed: Allowance) -> Transaction[None]:
    """Count a case that a key opens; raises `OverBudget`."""
    rows = yield LOCKED_USAGE, {"key_id": key_id}
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
    yield (OPENED if rows else INSERT_USAGE), values


def case_changed(key_id: str | None, *, closed: int, more: int) -> Transaction[None]:
    """Count that some of a key's cases have ended, or that more is stored for it, or less."""
    if key_id is not None and (closed or more):
        yield CHANGED, {"key_id": key_id, "closed": closed, "more": more}


def callback_due(key_id: str | None, due_at: int) -> Transaction[None]:
    """Make a key's callbacks due by then."""
    at = {"key_id": key_id or "", "due_at": due_at}
    if not (yield CALLBACK_DUE, at):
        fresh = {"key_id": key_id or "", "open_cases": 0, "stored_bytes": 0, "opened": "[]"}
        yield INSERT_USAGE, {**fresh, "callback_at": due_at}


def case_purged(sizes: Mapping[str, int]) -> Transaction[None]:
    """Subtract the bytes of purged cases from their keys."""
    for key_id in sorted(sizes):
        yield from case_changed(key_id, closed=0, more=-sizes[key_id])


_S = streams.c


class StreamRow(NamedTuple):
    """A stream's columns."""

    stream_id: str
    process: str
    key_id: str
    address: str | None
    until: int


_OPEN = _S.until > param("now")
STREAMS_OF_KEY = Statement(select(func.count()).where(_S.key_id == param("key_id"), _OPEN))
STREAMS_OF_ADDRESS = Statement(select(func.count()).where(_S.address == param("address"), _OPEN))
INSERT_STREAM = Statement(insert(streams).values({name: param(name) for name in StreamRow._fields}).inline())
RENEW_STREAMS = Statement(update(streams).where(_S.process == param("process")).values(until=param("until")))
CLOSE_STREAM = Statement(delete(streams).where(_S.stream_id == param("stream_id")))
FORGET_STREAMS = Statement(delete(streams).where(_S.until <= param("now")))


def begin_stream(row: StreamRow, now: int, of_key: int, of_address: int) -> Transaction[str | None]:
    """Count an open stream; or return the name of the exceeded budget."""
    yield LOCKED_USAGE, {"key_id": row.key_id}  # the key's lock: concurrent streams are counted one by one
    [(count,)] = yield STREAMS_OF_KEY, {"key_id": row.key_id, "now": now}
    if count >= of_key:
        return "streams_per_key"
    if row.address is not None:
        [(count,)] = yield STREAMS_OF_ADDRESS, {"address": row.address, "now": now}
        if count >= of_address:
            return "streams_per_address"
    yield INSERT_STREAM, row._asdict()
    return None


def renew_streams(process: str, until: int) -> Transaction[int]:
    """Renew the streams of a process; returns how many there are."""
    return (yield RENEW_STREAMS, {"process": process, "until": until})


def end_stream(stream_id: str) -> Transaction[None]:
    """Delete a stream that has ended."""
    yield CLOSE_STREAM, {"stream_id": stream_id}


def forget_streams(now: int) -> Transaction[int]:
    """Delete streams of dead processes; returns how many."""
    return (yield FORGET_STREAMS, {"now": now})
