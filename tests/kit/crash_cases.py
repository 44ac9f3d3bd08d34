"""What the crash matrices share: running lives, some at a time, and waiting between one life and the next."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from askfirst.checkpointer.base import Checkpointer
from askfirst.hitl.testing import RaceOutcome, RaceTrack
from askfirst.requests import HitlRequest
from kit.patience import PATIENCE

AT_ONCE = 24


async def lives(track: RaceTrack, target: str, jobs: list[dict[str, Any]]) -> list[RaceOutcome]:
    """Run lives, some at a time."""
    outcomes: list[RaceOutcome] = []
    for first in range(0, len(jobs), AT_ONCE):
        outcomes += await track.race(target, jobs[first : first + AT_ONCE])
    return outcomes


async def until_lapsed(checkpointer: Checkpointer, thread_id: str) -> None:
    """Wait until the lease of a dead process has lapsed, so that the next life passes each point only once."""
    async with asyncio.timeout(PATIENCE):
        while True:
            thread = await checkpointer.load(thread_id)
            if thread is None or thread.lease_owner is None or thread.lease_until < time.time():
                return
            await asyncio.sleep(0.05)


def attempt_of(request: HitlRequest) -> int:
    """The number of the attempt that an escalation is about."""
    payload = request.payload
    return payload.details["attempt"] if payload.kind == "escalate" and payload.details else 0
