"""Looking at the audit trail: whether it is whole, whether the tables hold what it says, and as lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from assent.digests import canonical_json
from assent.service.audit_contents import compare
from assent.store import chain
from assent.store.audit import Act
from assent.store.chain import START, AuditPage, AuditRow, Head
from assent.store.engine import Engine

PAGE_ROWS = 500
FAULTS_NAMED = 100
"""How many faults are described; the rest are counted."""
_BEFORE_ALL = -(2**63)


class Fault(NamedTuple):
    """Something wrong with the trail, at or just before row ``seq``, or with what that row speaks of.

    ``seq`` is None where there is no row, or none in the chain yet.
    """

    seq: int | None
    problem: str
    """One sentence that names the rows."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of looking at the whole trail. ``rows`` and ``head`` are worth keeping elsewhere."""

    rows: int
    head: str
    """The last row's hash."""
    faults: tuple[Fault, ...]
    fault_count: int
    unlinked: int = 0
    """How many acts are written and not yet linked into the chain. Until they are, the head says nothing of them."""
    older: int = 0
    """How many requests and cases are from before the trail had hashes of what was asked and answered."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was altered, removed or inserted."""
        return self.fault_count == 0


async def verify(engine: Engine, *, kept: Head | None = None) -> Verdict:
    """Read the trail from its beginning, check every link, and compare it with what the tables hold.

    Others may write meanwhile. ``kept`` is a head from earlier that was kept elsewhere: the chain has to go on
    from there.
    """
    walk = _Walk(kept)
    while True:
        page = await engine.read(partial(chain.page, walk.seq, PAGE_ROWS))
        for row in page.rows:
            walk.step(row, page.after)
        if len(page.rows) < PAGE_ROWS:
            walk.end(page)
            break
    async for act in _unlinked(engine):
        walk.wait(act)
    async for compared in compare(engine):
        walk.older += compared.older
        for difference in compared.differences:
            walk.fault(*difference)
    return walk.verdict()


async def export(engine: Engine) -> AsyncIterator[str]:
    """The trail's rows, oldest first, each as a line of canonical JSON (without the line's end).

    Behind those of the chain come the acts that are not linked yet: they have no ``seq``.
    """
    after = _BEFORE_ALL
    # First: what is linked meanwhile is found in the chain.
    waiting: dict[str | None, Act] = {act.act_id: act async for act in _unlinked(engine)}
    while True:
        page = await engine.read(partial(chain.page, after, PAGE_ROWS))
        for row in page.rows:
            yield canonical_json(_shown(row)).decode()
            after = row.seq
            waiting.pop(row.act_id, None)
        if len(page.rows) < PAGE_ROWS:
            break
    for act in waiting.values():
        shown = _shown(chain.as_if_linked(act))
        for name in ("seq", "previous", "hash"):
            del shown[name]
        yield canonical_json(shown).decode()


async def _unlinked(engine: Engine) -> AsyncIterator[Act]:
    after = ""
    while page := await engine.read(partial(chain.tail, after, PAGE_ROWS)):
        for act in page:
            yield act
        after = page[-1].act_id


def _shown(row: AuditRow) -> dict[str, Any]:
    """A row to be read by others; one that was tampered with is shown with its columns as they are."""
    try:
        facts = row.facts
    except (TypeError, ValueError):
        facts = row._asdict()
    return {**facts, "hash": row.hash}


class _Walk:
    """A passage over the trail, row by row."""

    def __init__(self, kept: Head | None = None) -> None:
        self.seq = _BEFORE_ALL
        self.older = 0
        self._kept = kept
        self._unlinked = 0
        self._last = START
        self._rows = 0
        self._faults: list[Fault] = []
        self._fault_count = 0

    def step(self, row: AuditRow, after: Head | None) -> None:
        """Look at the next row. ``after`` is a head from after it was read, so that it cannot lie behind."""
        self.seq = row.seq
        self._rows += 1
        expected = self._last.seq + 1
        # SQLite keeps a text where a number belongs, if somebody puts it there.
        if type(row.seq) is not int or row.seq < expected or (after is not None and row.seq > after.seq):
            self.fault(row.seq, f"row {row.seq} was inserted: the chain does not reach it")
            return
        if not row.fits:
            self.fault(row.seq, f"row {row.seq} was altered: its hash does not fit it")
        elif row.seq > expected:
            self.fault(row.seq, _missing(expected, row.seq - 1))
        elif row.previous != self._last.hash:
            self.fault(row.seq, _broken_link(self._last.seq, row.seq))
        self._last = Head(row.seq, row.hash)
        if self._kept is not None and self._kept.seq == row.seq and self._kept.hash != row.hash:
            self.fault(
                row.seq, f"row {row.seq}, or one before it, was written anew: the head that was kept differs"
            )

    def wait(self, act: Act) -> None:
        """Look at an act that is not linked yet."""
        self._unlinked += 1
        if not chain.as_if_linked(act).fits:
            self.fault(None, f"the unlinked act {act.act_id} was altered: its hash does not fit it")

    def end(self, page: AuditPage) -> None:
        """Compare the end of the chain with the head from before the last rows were read."""
        head, last = page.before, self._last
        if self._kept is not None and self._kept.seq > last.seq:
            self.fault(
                self._kept.seq, f"{_missing(last.seq + 1, self._kept.seq)}: the head that was kept had them"
            )
        if head is None:
            if last.seq:
                self.fault(last.seq, "the head of the chain is missing")
        elif last.seq < head.seq:
            self.fault(head.seq, _missing(last.seq + 1, head.seq))
        elif last == head or last.seq > head.seq:  # what was appended meanwhile is chained to it
            return
        else:
            self.fault(last.seq, f"row {last.seq} was altered: the head of the chain has another hash for it")

    def verdict(self) -> Verdict:
        return Verdict(
            self._rows, self._last.hash, tuple(self._faults), self._fault_count, self._unlinked, self.older
        )

    def fault(self, seq: int | None, problem: str) -> None:
        """Note something that is wrong."""
        self._fault_count += 1
        if len(self._faults) < FAULTS_NAMED:
            self._faults.append(Fault(seq, problem))


def _missing(first: int, last: int) -> str:
    return f"row {first} is missing" if first == last else f"rows {first} to {last} are missing"


def _broken_link(before: int, seq: int) -> str:
    if before == 0:
        return f"row {seq} was altered: it is the first, and names another before it"
    return f"row {before} was altered: row {seq} was chained to another"
