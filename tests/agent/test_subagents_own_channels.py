"""Children with channels of their own: what they ask there is the tree's, as what it asks through the root's is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.deeds import Deeds, call, completed, delegate, script
from kit.patience import PATIENCE

from askfirst import Agent, AgentResult, AgentSpec, subagent_tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlNoPendingRequest, HitlRequestPending
from askfirst.hitl import HitlRequest, InMemoryChannel
from askfirst.requests import StoredRequest

pytestmark = pytest.mark.anyio

APPROVE, DENY = {"decision": "approve"}, {"decision": "deny"}


class Desks:
    """Two children that ask at the same time, each at a desk of its own; the root has no channel."""

    def __init__(self, store: SqlCheckpointer, *desks: InMemoryChannel) -> None:
        self.deeds, self.desks = Deeds(), desks or (InMemoryChannel(), InMemoryChannel())
        turn = [delegate(f"d{n}", f"w{n}") for n in range(2)]
        self.agent = Agent(
            model=script(turn, "done", "well"),
            tools=[subagent_tool(self._worker(n), channel=desk) for n, desk in enumerate(self.desks)],
            checkpointer=store,
            thread_id="t",
        )

    def _worker(self, number: int) -> AgentSpec:
        model = script([call(f"c{number}", "pay", f"w{number}")], "worked")
        return AgentSpec(f"w{number}", model, tools=[self.deeds.asks("pay")])

    async def waiting(self) -> asyncio.Task[AgentResult]:
        """A run that waits at both."""
        run = asyncio.create_task(self.agent.prompt("go"))
        for desk in self.desks:
            await anext(aiter(desk.subscribe()))
        return run


async def test_a_prompt_does_not_wait_for_them(checkpointer: SqlCheckpointer) -> None:
    desks = Desks(checkpointer)
    run = await desks.waiting()
    with pytest.raises(HitlRequestPending):
        await desks.agent.prompt("and?")
    assert (await desks.agent.prompt("never mind", on_pending="supersede")).status == "completed"
    assert (await run).status == "suspended"
    assert [await desk.open_request() for desk in desks.desks] == [None, None]
    assert desks.deeds.done == []


async def test_they_are_answered_through_the_root(checkpointer: SqlCheckpointer) -> None:
    desks = Desks(checkpointer)
    run = await desks.waiting()
    assert await desks.agent.respond(question_id="c1", answer=APPROVE) is None
    assert await desks.agent.respond(answer=DENY) is None
    assert completed(await run).keys() == {"d0", "d1"}
    assert desks.deeds.done == ["pay w1"]


async def test_all_of_them_are_left_at_once(checkpointer: SqlCheckpointer) -> None:
    desks, left = Desks(checkpointer), list[Any]()
    desks.agent.subscribe(lambda event: left.append(event) if event.type == "agent_suspended" else None)
    run = await desks.waiting()
    await desks.agent.detach()
    assert (await run).status == "suspended"
    assert sorted(event.pending_request.question_id for event in left) == ["c0", "c1"]
    for number, desk in enumerate(desks.desks):
        await desk.answer(f"c{number}", APPROVE)
    assert completed(await desks.agent.resume()).keys() == {"d0", "d1"}
    assert sorted(desks.deeds.done) == ["pay w0", "pay w1"]


async def test_and_ended_at_once(checkpointer: SqlCheckpointer) -> None:
    desks = Desks(checkpointer)
    run = await desks.waiting()
    await desks.agent.abort_pending("enough")
    assert (await run).status == "aborted"
    assert [await desk.open_request() for desk in desks.desks] == [None, None]
    with pytest.raises(HitlNoPendingRequest):
        await desks.agent.abort_pending("enough")
    assert desks.deeds.done == []


# One that comes to its question when the others are being left.


class Later(InMemoryChannel):
    """A desk at which it takes a while to write a question down."""

    def __init__(self) -> None:
        super().__init__()
        self.is_writing, self.may_write = asyncio.Event(), asyncio.Event()

    async def _record(self, request: HitlRequest, host: Any) -> StoredRequest:
        self.is_writing.set()
        await self.may_write.wait()
        return await super()._record(request, host)


@pytest.mark.parametrize("how", ["detached", "aborted", "superseded"])
async def test_nobody_waits_for_who_was_just_writing_a_question_down(
    checkpointer: SqlCheckpointer, how: str
) -> None:
    desks = Desks(checkpointer, InMemoryChannel(), late := Later())
    run = asyncio.create_task(desks.agent.prompt("go"))
    await anext(aiter(desks.desks[0].subscribe()))
    await late.is_writing.wait()
    ending = asyncio.create_task(
        {
            "detached": desks.agent.detach,
            "aborted": desks.agent.abort_pending,
            "superseded": lambda: desks.agent.prompt("no", on_pending="supersede"),
        }[how]()
    )
    while desks.desks[0].pending is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    late.may_write.set()
    async with asyncio.timeout(PATIENCE):
        assert (await run).status == ("aborted" if how == "aborted" else "suspended")
        await ending
    still = [await desk.open_request() for desk in desks.desks]
    assert [it.question_id if it else None for it in still] == (
        ["c0", "c1"] if how == "detached" else [None, None]
    )
    assert desks.deeds.done == []


async def test_who_was_left_may_ask_again(checkpointer: SqlCheckpointer) -> None:
    desks = Desks(checkpointer)
    run = await desks.waiting()
    await desks.agent.detach()
    assert (await run).status == "suspended"
    again = asyncio.create_task(desks.agent.resume())
    for desk in desks.desks:
        await anext(aiter(desk.subscribe()))
    for number, desk in enumerate(desks.desks):
        await desk.answer(f"c{number}", APPROVE)
    assert completed(await again).keys() == {"d0", "d1"}
