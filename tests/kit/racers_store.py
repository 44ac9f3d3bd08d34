"""The processes of the races on one database; see proofs/test_races_store.py."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from askfirst.errors import HitlStaleAnswer, LeaseHeld, LeaseLost
from askfirst.hitl.testing import RaceTrack
from askfirst.messages import UserMessage
from kit.stores import connect, prompt, said

CLAIMS = 60


async def race(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """Race for leases and answers; returns those that this process won."""
    number, claimed, settled = job["number"], list[int](), list[int]()
    async with connect(job["kind"], job["address"], owner=f"process {number}") as checkpointer:
        await start()
        for claim in range(CLAIMS):
            step = said(UserMessage(f"claimed by {number}"))
            with suppress(LeaseHeld, LeaseLost):
                await checkpointer.commit(f"t{claim}", step, fence=job["fences"][claim], acquire=True)
                claimed.append(claim)
            with suppress(HitlStaleAnswer):
                decision = "approve" if number % 2 else "deny"
                await checkpointer.settle(f"t{claim}", "call-1", {"decision": decision}, by=str(number))
                settled.append(claim)
        woken_by = (await checkpointer.settled("signal", "call-1")).answered_by
    return {"number": number, "claimed": claimed, "settled": settled, "woken_by": woken_by}


async def open_fresh(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> None:
    """Open a new database at the same time as other processes, and use it; a warning is an error."""
    await start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with connect(job["kind"], job["address"]) as checkpointer:
            await checkpointer.commit(job["thread_id"], prompt(), fence=0, acquire=True)


RACE = f"{__name__}:{race.__name__}"
OPEN = f"{__name__}:{open_fresh.__name__}"


async def warm_up(track: RaceTrack, kind: str, address: str) -> None:
    """Load what a store of this kind needs, in the process that racers are forked from."""
    job = {"kind": kind, "address": address, "thread_id": secrets.token_hex(4)}
    await track.race(OPEN, [], warm_up=job)
