"""Noting in the audit trail that an approved call has run to its end, as its agent's ledger of effects says."""

from __future__ import annotations

from assent.store.audit import Entry
from assent.store.case_rows import CaseRow
from assent.store.case_store import CaseStore
from assent.store.executed import EndedEffect
from assent.store.finish import finish

NEAR = 3_600_000
"""Most calls run soon: cases that ended within this many milliseconds are looked at every time."""
FAR = 7 * 86_400_000
"""The others, up to this age, are looked at now and then."""
FAR_EVERY = 60_000
_PAGE = 100


class Executed:
    """Looks for calls that have ended. Any number of processes may: each call is noted once."""

    def __init__(self, store: CaseStore) -> None:
        self._store = store
        self._far_at = 0

    async def note(self, now: int) -> int:
        """Note some of what has ended since the last time; returns how many were found."""
        age = NEAR
        if now >= self._far_at:
            self._far_at, age = now + FAR_EVERY, FAR
        found = await self._store.executed(now - age, _PAGE)
        for case_id in found:
            await finish(self._store.note_executed(case_id, _entry))
        return len(found)


def _entry(row: CaseRow, effect: EndedEffect) -> Entry:
    """What ran is named by its digest: after an edit, not the one that was asked about."""
    detail = {
        "type": row.type,
        "digest": effect.digest,
        "tool_name": effect.tool_name,
        "attempt": effect.attempt,
        "started_at": effect.started_at,
        "ended_at": effect.ended_at,
    }
    return Entry(at=effect.ended_at, actor="agent", act="case.executed", subject=row.case_id, detail=detail)
