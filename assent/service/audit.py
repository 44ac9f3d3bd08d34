"""Looking at the audit trail: whether it is whole, and as lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from assent.digests import canonical_json
from assent.store import audit
from assent.store.audit import GENESIS, AuditPage, AuditRow, Head
from assent.store.engine import Engine

PAGE_ROWS = 500
FAULTS_NAMED = 100
"""How many faults are described; the rest are counted."""
_BEFORE_ALL = -(2**63)


class Fault(NamedTuple):
    """Something wrong with the trail, at or just before row ``seq``."""

    seq: int
    problem: str
    """One sentence that names the rows."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of looking at the whole trail. ``rows`` and ``head`` are worth writing down elsewhere."""

    rows: int
    head: str
    """The last row's hash."""
    faults: tuple[Fault, ...]
    fault_count: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing was altered, removed or inserted."""
        return self.fault_count == 0


async def verify(engine: Engine) -> Verdict:
    """Read the trail from its beginning and check every link; others may append meanwhile."""
    walk = _Walk()
    while True:
        page = await engine.read(partial(audit.page, walk.seq, PAGE_ROWS))
        for row in page.rows:
            walk.step(row, page.after)
        if len(page.rows) < PAGE_ROWS:
            walk.end(page)
            return walk.verdict()


async def export(engine: Engine) -> AsyncIterator[str]:
    """The trail's rows, oldest first, each as a line of canonical JSON (without the line's end).

    A line without its ``hash`` is what the hash was taken over.
    """
    after = _BEFORE_ALL
    while True:
        page = await engine.read(partial(audit.page, after, PAGE_ROWS))
        for row in page.rows:
            yield canonical_json(_shown(row)).decode()
            after = row.seq
        if len(page.rows) < PAGE_ROWS:
            return


def _shown(row: AuditRow) -> dict[str, Any]:
    """A row to be read by others; one that was tampered with is shown with its columns as they are."""
    facts = _facts(row)
    return {**(row._asdict() if facts is None else facts), "hash": row.hash}


def _facts(row: AuditRow) -> dict[str, Any] | None:
    try:
        return row.facts
    except (TypeError, ValueError):
        return None


def _fits_its_hash(row: AuditRow) -> bool:
    facts = _facts(row)
    return facts is not None and audit.digest(facts) == row.hash


class _Walk:
    """A passage over the trail, row by row."""

    def __init__(self) -> None:
        self.seq = _BEFORE_ALL
        self._last = Head(0, GENESIS)
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
            self._fault(row.seq, f"row {row.seq} was inserted: the chain does not reach it")
            return
        if not _fits_its_hash(row):
            self._fault(row.seq, f"row {row.seq} was altered: its hash does not fit it")
        elif row.seq > expected:
            self._fault(row.seq, _missing(expected, row.seq - 1))
        elif row.previous != self._last.hash:
            self._fault(row.seq, _broken_link(self._last.seq, row.seq))
        self._last = Head(row.seq, row.hash)

    def end(self, page: AuditPage) -> None:
        """Compare the end of the chain with the head from before the last rows were read."""
        head, last = page.before, self._last
        if head is None:
            if last.seq:
                self._fault(last.seq, "the head of the chain is missing")
        elif last.seq < head.seq:
            self._fault(head.seq, _missing(last.seq + 1, head.seq))
        elif last == head or last.seq > head.seq:  # what was appended meanwhile is chained to it
            return
        else:
            self._fault(
                last.seq, f"row {last.seq} was altered: the head of the chain has another hash for it"
            )

    def verdict(self) -> Verdict:
        return Verdict(self._rows, self._last.hash, tuple(self._faults), self._fault_count)

    def _fault(self, seq: int, problem: str) -> None:
        self._fault_count += 1
        if len(self._faults) < FAULTS_NAMED:
            self._faults.append(Fault(seq, problem))


def _missing(first: int, last: int) -> str:
    return f"row {first} is missing" if first == last else f"rows {first} to {last} are missing"


def _broken_link(before: int, seq: int) -> str:
    if before == 0:
        return f"row {seq} was altered: it is the first, and names another before it"
    return f"row {before} was altered: row {seq} was chained to another"
