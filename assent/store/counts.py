"""Allowances that several processes share: each use is counted before it is known what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import delete, insert, select, update

from assent.store.budget_tables import counts
from assent.store.statement import Statement, Transaction, param
from assent.store.windows import Window, read_used, write_used

_N = counts.c
LOCKED = Statement(select(_N.used).where(_N.subject == param("subject")).with_for_update())
_VALUES = {"used": param("used"), "at": param("at")}
INSERT = Statement(insert(counts).values(subject=param("subject"), **_VALUES).inline())
UPDATE = Statement(update(counts).where(_N.subject == param("subject")).values(_VALUES))
FORGET = Statement(delete(counts).where(_N.at < param("before")))


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


def spend(uses: Sequence[Use], now: int) -> Transaction[Refused | None]:
    """Use all of these, or none of them if one has not enough left."""
    found: dict[str, list[tuple[int, int]] | None] = {}
    for use in sorted(uses, key=lambda use: use.subject):  # the same order for all: nobody waits in a circle
        rows = yield LOCKED, {"subject": use.subject}
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
        # A race to be first ends in a unique violation, and is run again.
        yield (INSERT if known is None else UPDATE), params
    return None


def forget(before: int) -> Transaction[int]:
    """Forget what was not used since then; returns how much that is."""
    return (yield FORGET, {"before": before})
