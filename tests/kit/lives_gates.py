"""The processes of the gate's crash matrix and of its races: calls with one key, by processes that may be killed.

A *life* is one process that calls a function through a gate, and plays the person who is asked. It ends when the call
has ended, unless it is killed before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from askfirst.checkpointer import base
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.errors import HitlNoPendingRequest, HitlStaleAnswer
from askfirst.gate.gate import Gate
from askfirst.gate.key_state import thread_of
from askfirst.gate.outcomes import Ran
from askfirst.hitl.testing import crash_at
from kit.lives_agents import opened


@dataclass(frozen=True)
class Scenario:
    """How the function is guarded, and the person's answers."""

    effect: Literal["once", "idempotent"] = "once"
    asks: bool = True
    doubt: Literal["skip", "retry"] = "skip"
    edits: bool = False


SCENARIOS: dict[str, Scenario] = {
    "once, then skip": Scenario(),
    "once, then retry": Scenario(doubt="retry"),
    "edited": Scenario(edits=True, doubt="retry"),
    "allowed, then skip": Scenario(asks=False),
    "idempotent": Scenario(effect="idempotent"),
}


async def live(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """One life. ``job["crash"]`` says where it is killed: a point, and how often the point is passed before."""
    reached: list[str] = []
    crash = job["crash"]
    base.hook = reached.append
    try:
        with nullcontext() if crash is None else crash_at(crash[0], skip=crash[1], own=True):
            async with opened(job["url"]) as store:
                told = await _call(store, SCENARIOS[job["scenario"]], job["key"], Path(job["effects"]))
    finally:
        base.hook = None
    return {**told, "reached": reached}


async def race(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """One of many processes that call the same key at the same time."""
    async with checkpointer_from_url(job["url"]) as store:
        await store.load("nothing")  # connects
        await start()
        return await _call(store, SCENARIOS[job["scenario"]], job["key"], Path(job["effects"]))


async def _call(store: Checkpointer, scenario: Scenario, key: str, effects: Path) -> dict[str, Any]:
    async def pay(amount: int) -> str:
        """Pay."""
        base.reached("body.before")
        _note(effects, str(amount))
        base.reached("body.during")
        await asyncio.sleep(0)
        base.reached("body.after")
        return f"paid {amount}"

    retried: list[str] = []
    async with Gate(store) as gate:
        person = asyncio.create_task(_answer_all(store, scenario, key, retried))
        try:
            outcome = await gate.call(
                pay, {"amount": 1}, key=key, effect=scenario.effect, requires_approval=scenario.asks
            )
        finally:
            person.cancel()
            await asyncio.wait({person})
    ran = isinstance(outcome, Ran)
    return {"ran": ran, "result": outcome.result if ran else str(outcome), "retried": retried}


async def _answer_all(store: Checkpointer, scenario: Scenario, key: str, retried: list[str]) -> None:
    """The person: reads the open requests of the key, and answers them."""
    thread_id = thread_of(key)
    while True:
        pending = await store.load_pending_request(thread_id)
        if pending is not None:
            answer: Any = {"decision": "approve"}
            if pending.payload.kind == "escalate":
                answer = scenario.doubt
            elif scenario.edits:
                answer = {"decision": "edit", "edited_args": {"amount": 2}}
            with suppress(HitlStaleAnswer, HitlNoPendingRequest):
                await store.settle(thread_id, pending.question_id, answer, digest=pending.digest)
                if answer == "retry":
                    retried.append(pending.question_id)
        await asyncio.sleep(0.01)


def _note(effects: Path, what: str) -> None:
    line = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(line, f"{what}\n".encode())
    finally:
        os.close(line)


def done(effects: Path) -> list[str]:
    """The recorded effects."""
    return effects.read_text().split() if effects.exists() else []
