"""What each process of the races over one database does; see test_checkpointer_races.py."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from stores import connect, said

from assent.errors import HitlStaleAnswer, LeaseHeld, LeaseLost
from assent.messages import UserMessage

CLAIMS = 60


@dataclass
class Report:
    """What one process achieved."""

    number: int
    claimed: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    woken_by: str | None = None


def run(kind: str, address: str, number: int, start: Any, reports: Any) -> None:
    """Take part, and report."""
    reports.put(asyncio.run(race(kind, address, number, start)))


async def race(kind: str, address: str, number: int, start: Any) -> Report:
    report = Report(number)
    async with connect(kind, address, owner=f"process {number}") as checkpointer:
        await asyncio.to_thread(start.wait)
        for claim in range(CLAIMS):
            step = said(UserMessage(f"claimed by {number}"))
            with suppress(LeaseHeld, LeaseLost):
                await checkpointer.commit(f"t{claim}", step, fence=2, acquire=True)
                report.claimed.append(claim)
            with suppress(HitlStaleAnswer):
                decision = "approve" if number % 2 else "deny"
                await checkpointer.settle(f"t{claim}", "call-1", {"decision": decision}, by=str(number))
                report.settled.append(claim)
        report.woken_by = (await checkpointer.settled("signal", "call-1")).answered_by
    return report
