"""How a question ended that nobody answered: listeners hear of it once, and the run that waited says why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kit.channel_rigs import STORED, Rig, asked
from kit.deeds import Deeds, call, delegate, script
from kit.store_urls import STORES, StoreUrls

from askfirst import Agent, AgentSpec, tool
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlCancelled, HitlDetached
from askfirst.events import AgentAbortedEvent, AgentEvent, HitlAnswerEvent, RunEndedEvent, RunStartedEvent
from askfirst.hitl import CheckpointedChannel, HitlChannel, InMemoryChannel
from askfirst.hitl.testing import Aborts, RaceOutcome, RaceTrack, race_answers
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

SUPERSEDED = "superseded by a newer prompt"
CALL = ToolCall("c1", "pay", {"amount": 5})


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def payer(channel: HitlChannel | None, *turns: Any, **options: Any) -> Agent:
    return Agent(model=ScriptedModel(list(turns)), tools=[pay], channel=channel, thread_id="t", **options)


def told(agent: Agent) -> list[str]:
    """What listeners hear of beginnings and ends from now on, in order."""
    heard: list[str] = []

    def hear(event: AgentEvent) -> None:
        if isinstance(event, HitlAnswerEvent):
            how = "timed out" if event.timed_out else "cancelled" if event.cancelled else "answered"
            heard.append(f"{event.question_id} {how}")
        elif isinstance(event, RunEndedEvent):
            heard.append(event.status)
        elif isinstance(event, RunStartedEvent | AgentAbortedEvent):
            heard.append(event.type)

    agent.subscribe(hear)
    return heard


async def abort(agent: Agent) -> None:
    agent.abort()


async def abort_pending(agent: Agent) -> None:
    await agent.abort_pending("enough")


async def supersede(agent: Agent) -> None:
    assert (await agent.prompt("never mind", on_pending="supersede")).status == "completed"


Act = Callable[[Agent], Awaitable[None]]
CLOSED = ["c1 cancelled", "agent_aborted", "aborted"]
SUPERSEDING = ["run_started", "c1 cancelled", "completed"]
"""The request is settled by the newer prompt, with the commit that begins its run."""

waited_for = pytest.mark.parametrize(
    ("act", "heard", "reason"),
    [
        (abort, ["c1 cancelled", "aborted"], "the run was aborted"),
        (abort_pending, CLOSED, "enough"),
        (supersede, ["suspended", *SUPERSEDING], SUPERSEDED),
    ],
)
left = pytest.mark.parametrize(("act", "heard"), [(abort_pending, CLOSED), (supersede, SUPERSEDING)])


async def waiting(channel: HitlChannel) -> tuple[Agent, asyncio.Task[Any]]:
    """An agent that waits for a person, and its run."""
    agent = payer(channel, CALL, "next")
    run = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    return agent, run


async def check_waited_for(channel: HitlChannel, act: Act, heard: list[str], reason: str) -> None:
    agent, run = await waiting(channel)
    hearing = told(agent)
    await act(agent)
    assert (await run).reason == reason
    assert hearing == heard
    await agent.prompt("and now?")
    assert hearing.count("c1 cancelled") == 1


async def check_left(channel: HitlChannel, act: Act, heard: list[str]) -> None:
    agent, run = await waiting(channel)
    hearing = told(agent)
    await agent.detach()
    result = await run
    assert (result.status, result.reason) == ("suspended", "it waits for a person")
    assert hearing == ["suspended"]  # the request is open
    await act(agent)
    assert hearing == ["suspended", *heard]


# A request that ends with nobody there to answer.


@waited_for
async def test_a_question_that_is_ended_is_told_of(rig: Rig, act: Act, heard: list[str], reason: str) -> None:
    await check_waited_for(rig.channel(), act, heard, reason)


@left
async def test_and_one_that_was_left_only_when_it_ends(rig: Rig, act: Act, heard: list[str]) -> None:
    await check_left(rig.channel(), act, heard)


def on(checkpointer: SqlCheckpointer) -> CheckpointedChannel:
    return CheckpointedChannel(checkpointer=checkpointer, thread_id="t")


@waited_for
async def test_so_on_every_store(
    checkpointer: SqlCheckpointer, act: Act, heard: list[str], reason: str
) -> None:
    await check_waited_for(on(checkpointer), act, heard, reason)


@left
async def test_and_so_on_every_store(checkpointer: SqlCheckpointer, act: Act, heard: list[str]) -> None:
    await check_left(on(checkpointer), act, heard)


async def test_a_wait_that_is_cancelled_ends_no_question(rig: Rig) -> None:
    channel = rig.channel()
    agent, run = await waiting(channel)
    heard = told(agent)
    run.cancel()
    await asyncio.wait([run])
    assert heard == ["suspended"]
    assert await channel.open_request() is not None


async def test_nobody_is_told_where_no_channel_asked(checkpointer: SqlCheckpointer) -> None:
    agent = payer(None, CALL, "next", checkpointer=checkpointer)
    assert (await agent.prompt("go")).status == "paused"
    heard = told(agent)
    await agent.abort_pending("enough")
    assert heard == ["agent_aborted", "aborted"]


@pytest.mark.parametrize("rig", ["in_memory", "own"], indirect=True)
async def test_whoever_still_waits_is_told_of_by_the_channel_alone(rig: Rig) -> None:
    """A host asks beside a run; when that is aborted, the question goes with it, and is told of once."""
    began = asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        began.set()
        await asyncio.Event().wait()
        return "done"

    channel = rig.channel()
    agent = Agent(
        model=ScriptedModel([ToolCall("w1", "work", {})]), tools=[work], channel=channel, thread_id="t"
    )
    heard = told(agent)
    run = asyncio.create_task(agent.prompt("go"))
    await began.wait()
    asking = asyncio.create_task(channel.confirm("Sure?"))
    question_id = (await asked(channel)).question_id
    agent.abort()
    assert (await run).status == "aborted"
    with pytest.raises(HitlCancelled):
        await asking
    assert heard.count(f"{question_id} cancelled") == 1


def boss(channel: HitlChannel) -> Agent:
    """An agent whose subagent asks."""
    clerk = AgentSpec("clerk", script([call("c1", "pay", "5")], "paid"), tools=[Deeds().asks("pay")])
    model = script([delegate("d1", "clerk")], "next")
    return Agent(id="boss", model=model, subagents=[clerk], channel=channel, thread_id="t")


@pytest.mark.parametrize("act", [abort, abort_pending, supersede])
async def test_what_a_subagent_asked_is_told_of_as_its_own(rig: Rig, act: Act) -> None:
    channel = rig.channel()
    agent = boss(channel)
    answers: list[tuple[str, bool]] = []

    def hear(event: AgentEvent) -> None:
        if isinstance(event, HitlAnswerEvent):
            answers.append(("/".join(event.agent_path), event.cancelled))

    agent.subscribe(hear)
    run = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    await act(agent)
    result = await run
    assert answers == [("boss/clerk", True)]
    assert (result.reason == SUPERSEDED) == (act is supersede)


# Why a run came to rest.


async def test_a_run_that_another_agent_superseded_says_so(checkpointer: SqlCheckpointer) -> None:
    agent, run = await waiting(on(checkpointer))
    heard = told(agent)
    await supersede(payer(on(checkpointer), "next"))
    result = await run
    assert (result.status, result.reason) == ("suspended", SUPERSEDED)
    assert heard == ["c1 cancelled", "suspended"]


@pytest.mark.parametrize("rig", STORED, indirect=True)
async def test_a_run_whose_question_was_asked_anew_does_not_blame_a_prompt(rig: Rig) -> None:
    _, run = await waiting(rig.channel())
    stored = await rig.checkpointer.request("t", "c1")
    payload = stored.request.payload.model_copy(update={"args": {"amount": 6}, "digest": "0" * 64})
    anew = stored.request.model_copy(update={"payload": payload})
    await rig.checkpointer.save_pending_request("t", anew)
    result = await run
    assert (result.status, result.reason) == ("suspended", "its question was asked anew elsewhere")


def test_the_signal_of_the_seeds_takes_no_reason() -> None:
    assert str(HitlDetached()) == "it waits for a person"


# Who cancelled.


async def test_a_cancel_is_on_record_with_who_and_where(checkpointer: SqlCheckpointer) -> None:
    _, run = await waiting(on(checkpointer))
    await checkpointer.cancel("t", "c1", "gone", by="bob", via="web")
    result = await run
    trace = {"decision": "cancelled", "reason": "gone", "answered_by": "bob", "via": "web"}
    assert result.messages[2].details == {"hitl": trace}


async def test_also_where_nobody_waited(checkpointer: SqlCheckpointer) -> None:
    agent = payer(None, CALL, "next", checkpointer=checkpointer)
    await agent.prompt("go")
    await checkpointer.cancel("t", "c1", "gone", by="bob", via="web")
    trace = (await agent.resume()).messages[2].details["hitl"]  # type: ignore[union-attr,index]
    assert (trace["answered_by"], trace["via"]) == ("bob", "web")


async def test_who_cancels_without_a_name_is_not_on_record() -> None:
    channel = InMemoryChannel()
    _, run = await waiting(channel)
    await channel.cancel("c1", "gone")
    assert (await run).messages[2].details == {"hitl": {"decision": "cancelled", "reason": "gone"}}


# The race helper.


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, store_urls: StoreUrls) -> str:
    return store_urls.get(request.param)


async def race(
    url: str, path: Path, track: RaceTrack, question_id: str, answer: Any
) -> tuple[RaceOutcome, dict[str, str]]:
    """Pause at two calls, settle the first, and let one process race; how it fared, and how the two stand."""
    async with checkpointer_from_url(url) as store:
        thread_id = f"ended-{path}"
        calls = [ToolCall(name, "pay", {"amount": 5}) for name in ("c1", "c2")]
        model = ScriptedModel([calls])
        await Agent(model=model, tools=[pay], checkpointer=store, thread_id=thread_id).prompt("go")
        await store.settle(thread_id, "c1", {"decision": "approve"})
        (outcome,) = await race_answers(url, thread_id, question_id, [answer], track=track)
        stored = [await store.request(thread_id, name) for name in ("c1", "c2")]
        return outcome, {it.question_id: it.status for it in stored if it is not None}


@pytest.mark.parametrize(("question_id", "status"), [("c1", "answered"), ("c9", None)])
async def test_who_aborts_at_what_is_not_open_loses(
    url: str, tmp_path: Path, race_track: RaceTrack, question_id: str, status: str | None
) -> None:
    outcome, stand = await race(url, tmp_path, race_track, question_id, Aborts("stop"))
    assert (outcome.won, outcome.error) == (False, "HitlStaleAnswer")
    assert outcome.facts == {"question_id": question_id, "status": status, "is_unnamed": False}
    assert stand == {"c1": "answered", "c2": "pending"}


async def test_who_aborts_at_what_is_open_wins(url: str, tmp_path: Path, race_track: RaceTrack) -> None:
    outcome, stand = await race(url, tmp_path, race_track, "c2", Aborts("stop"))
    assert (outcome.won, outcome.value) == (True, "aborted")
    assert stand == {"c1": "answered", "c2": "aborted"}


async def test_who_aborts_where_there_is_nothing_is_told(
    url: str, tmp_path: Path, race_track: RaceTrack
) -> None:
    async with checkpointer_from_url(url):
        (outcome,) = await race_answers(url, f"no-{tmp_path}", "c1", [Aborts()], track=race_track)
    assert outcome.error == "HitlNoPendingRequest"


async def test_an_outcome_has_the_faults_of_an_answer(
    url: str, tmp_path: Path, race_track: RaceTrack
) -> None:
    wrong = {"decision": "edit", "edited_args": {"amount": "much"}}
    outcome, _ = await race(url, tmp_path, race_track, "c2", wrong)
    assert outcome.error == "HitlInvalidAnswer"
    assert outcome.facts["question_id"] == "c2"
    (fault,) = outcome.facts["faults"]
    assert fault.startswith("amount")
