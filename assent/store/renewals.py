"""Renewing leases. It waits for nobody: neither for a lock, nor for a connection that others need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import and_, select, update

from assent.store import tables
from assent.store.rows import AT_ONCE
from assent.store.statement import Statement, Transaction, param

_T = tables.threads.c
_HELD = and_(_T.lease_owner == param("owner"), _T.thread_id.in_([param(f"id{n}") for n in range(AT_ONCE)]))
# Who has locked a thread's row may itself wait, for a minute, and all leases of its batch would lapse meanwhile.
FREE = Statement(select(_T.thread_id).where(_HELD).with_for_update(skip_locked=True))
RENEW = Statement(update(tables.threads).where(_HELD).values(lease_until=param("lease_until")))
HELD = Statement(select(_T.thread_id).where(_HELD))


class Renewed(NamedTuple):
    """Which threads' leases are renewed, and which are lost. The rest is held, and locked just now."""

    done: frozenset[str]
    lost: frozenset[str]


@dataclass(frozen=True, slots=True)
class Renewal:
    """The transaction that renews an owner's leases on up to `AT_ONCE` threads.

    An engine whose connections are all taken knows it by its type, and keeps one for it.
    """

    owner: str
    thread_ids: Sequence[str]
    lease_until: int

    def __call__(self) -> Transaction[Renewed]:
        """The transaction."""
        free = frozenset((yield from self._ids(FREE, self.thread_ids)))
        if free:
            yield RENEW, {**self._params(list(free)), "lease_until": self.lease_until}
        others = [it for it in self.thread_ids if it not in free]
        if not others:
            return Renewed(free, frozenset())
        return Renewed(free, frozenset(others).difference((yield from self._ids(HELD, others))))

    def _ids(self, statement: Statement, thread_ids: Sequence[str]) -> Transaction[list[str]]:
        rows = yield statement, self._params(thread_ids)
        return [thread_id for (thread_id,) in rows]

    def _params(self, thread_ids: Sequence[str]) -> Mapping[str, Any]:
        padded = [*thread_ids, *[thread_ids[-1]] * (AT_ONCE - len(thread_ids))]
        return {"owner": self.owner, **{f"id{n}": it for n, it in enumerate(padded)}}
