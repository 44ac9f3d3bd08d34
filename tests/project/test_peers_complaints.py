"""What users of other libraries complain about, by the number in their trackers.

Parallel calls, answers given in part, and approvals within subagents. Each test is named after a complaint, and
shows that what it complains about does not happen.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from kit.deeds import (
    TWO,
    Deeds,
    approve,
    call,
    completed,
    delegate,
    deny,
    edit,
    go_on,
    hitl,
    mailer,
    pending_ids,
    refunds,
    script,
    support,
)
from kit.transcripts import results

from askfirst import (
    Agent,
    AgentResult,
    AgentSpec,
    run_agent,
)
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpoints import CheckpointNotPendingError, RunCheckpointStore, resume_checkpoint
from askfirst.errors import HitlStaleAnswer, InvalidCheckpoint
from askfirst.permissions import Decision, PendingAction

pytestmark = pytest.mark.anyio

THREE = [call(f"c{n}", "mail", letter) for n, letter in enumerate("abc", 1)]
CALLS = ["c1", "c2", "c3"]


# Side effects.


@pytest.mark.parametrize("how", ["value", "store"])
async def test_mastra_20443_and_24590_two_resumes_both_run(how: str) -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    paused = await run_agent(spec, "go")
    async with MemoryCheckpointer() as memory:
        store = RunCheckpointStore(memory)
        if how == "store":
            assert paused.checkpoint is not None
            checkpoint_id = await store.save("mailer", paused.checkpoint)
            resumes = [
                resume_checkpoint(spec, checkpoint_id, approve("c1", "c2"), store=store) for _ in range(4)
            ]
        else:
            resumes = [go_on(spec, paused, approve("c1", "c2")) for _ in range(4)]
        outcomes = await asyncio.gather(*resumes, return_exceptions=True)
    assert sum(isinstance(each, AgentResult) for each in outcomes) == 1
    refused = CheckpointNotPendingError if how == "store" else InvalidCheckpoint
    assert sum(isinstance(each, refused) for each in outcomes) == 3
    assert sorted(deeds.done) == ["mail a", "mail b"]


async def test_aegra_253_a_double_click_resumes_twice() -> None:
    deeds = Deeds()
    spec = mailer(deeds, [call("c1", "mail", "a")], "done")
    async with MemoryCheckpointer() as memory:
        agents = [Agent.from_spec(spec, checkpointer=memory, thread_id="t") for _ in range(2)]
        await agents[0].prompt("go")
        clicks = await asyncio.gather(
            *(agent.resume_with(approve("c1")) for agent in agents), return_exceptions=True
        )
    told = [each for each in clicks if isinstance(each, HitlStaleAnswer | InvalidCheckpoint)]
    assert len(told) == 1
    assert deeds.done == ["mail a"]


async def test_heym_563_reviewers_overwrite_each_other() -> None:
    deeds = Deeds()
    spec = mailer(deeds, [call("c1", "mail", "a")], "done")
    async with MemoryCheckpointer() as memory:
        agent = Agent.from_spec(spec, checkpointer=memory, thread_id="t")
        await agent.prompt("go")
        await memory.settle("t", "c1", {"decision": "deny"}, by="ann")
        with pytest.raises(HitlStaleAnswer):
            await memory.settle("t", "c1", {"decision": "approve"}, by="bob")
        result = await agent.resume()
    assert hitl(result, "c1")["answered_by"] == "ann"
    assert deeds.done == []


async def test_langgraph_6208_what_ran_before_runs_again_until_all_is_answered() -> None:
    deeds = Deeds()
    spec = mailer(deeds, [call("c0", "look", "first")], [*THREE, call("c4", "look", "beside")], "done")
    result = await run_agent(spec, "go")
    for call_id in CALLS:
        assert deeds.done == ["look first"]
        result = await go_on(spec, result, approve(call_id))
    assert completed(result).keys() == {"c0", *CALLS, "c4"}
    assert sorted(deeds.done) == ["look beside", "look first", "mail a", "mail b", "mail c"]


async def test_deepagents_420_one_subagents_interrupt_re_runs_its_siblings() -> None:
    deeds = Deeds()
    quick = refunds(deeds, "quick", [call("q", "look", "q")], "quick is done")
    spec = support(deeds, "slow", "quick", children=[refunds(deeds, "slow"), quick])
    paused = await run_agent(spec, "go")
    assert deeds.done == ["look q"]
    assert completed(await go_on(spec, paused, approve("d0/c1"))) == {
        "d0": "slow paid",
        "d1": "quick is done",
    }
    assert deeds.done == ["look q", "pay slow"]
    assert len(quick.model.requests) == 2  # type: ignore[union-attr]


async def test_agno_8029_a_confirmed_call_is_dropped_and_the_reply_says_sent() -> None:
    """The model goes on only when each call has a result, and it is shown what came of it."""
    deeds = Deeds()

    def reply(messages: Any) -> str:
        return ", ".join(message.text for message in results(messages).values())

    spec = mailer(deeds, THREE, reply)
    paused = await run_agent(spec, "go")
    result = await go_on(spec, paused, [*approve("c1", "c3"), *deny("c2", reason="no")])
    assert deeds.done == ["mail a", "mail c"]
    assert result.text == "mail a, A person denied mail: no, mail c"


@pytest.mark.parametrize("later", [Decision.allow(), Decision.ask("again")])
async def test_langchain_37093_and_40491_a_rejected_call_executes(later: Decision) -> None:
    """Not even when the condition under which it is asked about does not hold any more."""

    class Policy:
        says = Decision.ask("first")

        async def evaluate(self, action: PendingAction) -> Decision:
            return self.says

    deeds, policy = Deeds(), Policy()
    spec = AgentSpec("a", script(TWO, "done"), tools=[deeds.tool("mail")], policy=policy)
    paused = await go_on(spec, await run_agent(spec, "go"), deny("c1"))
    policy.says = later
    await go_on(spec, paused, approve("c2"))
    assert deeds.done == ["mail b"]


# Parallel calls.


@pytest.mark.parametrize("order", list(itertools.permutations(CALLS)))
async def test_langgraph_6533_answers_to_parallel_calls_are_misrouted(order: tuple[str, ...]) -> None:
    deeds = Deeds()
    spec = mailer(deeds, THREE, "done")
    result = await run_agent(spec, "go")
    for call_id in order:
        result = await go_on(spec, result, edit(call_id, what=f"for {call_id}"))
    told = completed(result)
    assert list(told) == CALLS
    assert all(told[call_id].endswith(f"mail for {call_id}") for call_id in CALLS)
    assert sorted(deeds.done) == [f"mail for {call_id}" for call_id in CALLS]


async def test_langgraph_5952_an_answered_call_fires_again_with_the_next_answer() -> None:
    deeds = Deeds()
    spec = AgentSpec("mailer", script(THREE, "done"), tools=[deeds.asks("mail")], tool_gate="each")
    result = await run_agent(spec, "go")
    for n, call_id in enumerate(CALLS, 1):
        result = await go_on(spec, result, approve(call_id))
        assert len(deeds.done) == n
    assert sorted(deeds.done) == ["mail a", "mail b", "mail c"]


async def test_langgraph_6626_parallel_interrupts_have_identical_ids() -> None:
    """Neither within a message whose calls the model numbered badly, nor in two runs of one subagent."""
    deeds = Deeds()
    same = [call("call", "mail", "a"), call("call", "mail", "b")]
    paused = await run_agent(mailer(deeds, same, "done"), "go")
    assert len(set(pending_ids(paused))) == 2

    def pay(messages: Any) -> Any:
        return [call("call", "pay", messages[0].text)]

    child = refunds(deeds, "child", pay, "paid")
    turn = [delegate("d0", "child", "one"), delegate("d1", "child", "two")]
    spec = AgentSpec("support", script(turn, "done"), subagents=[child])
    paused = await run_agent(spec, "go")
    assert pending_ids(paused) == ["d0/call", "d1/call"]
    await go_on(spec, paused, [*approve("d1/call"), *deny("d0/call")])
    assert deeds.done == ["pay two"]


async def test_langchainjs_11125_one_rejection_with_a_message_harms_the_others() -> None:
    deeds = Deeds()
    spec = mailer(deeds, THREE, "done")
    paused = await run_agent(spec, "go")
    result = await go_on(spec, paused, [*deny("c2", reason="not this one"), *approve("c1", "c3")])
    told = completed(result)
    assert (told["c1"], told["c3"]) == ("mail a", "mail c")
    assert "not this one" in told["c2"]
    assert [message.is_error for message in results(result.messages).values()] == [False, True, False]


# Answers in part.


async def test_agno_what_is_not_answered_is_silently_rejected() -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    paused = await go_on(spec, await run_agent(spec, "go"), approve("c1"))
    assert pending_ids(paused) == ["c2"]
    assert completed(await go_on(spec, paused, approve("c2"))) == {"c1": "mail a", "c2": "mail b"}


async def test_pydantic_ai_and_langgraph_answering_one_of_two_is_an_error() -> None:
    deeds = Deeds()
    for first, second in (("c1", "c2"), ("c2", "c1")):
        spec = mailer(deeds)
        paused = await go_on(spec, await run_agent(spec, "go"), approve(first))
        assert completed(await go_on(spec, paused, approve(second)))
    assert len(deeds.done) == 4


async def test_langgraph_an_unknown_id_is_accepted() -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    with pytest.raises(InvalidCheckpoint, match="'nonsense' is not pending here"):
        await go_on(spec, await run_agent(spec, "go"), approve("nonsense"))
    assert deeds.done == []


async def test_cubeloop_one_visible_at_a_time() -> None:
    deeds = Deeds()
    assert pending_ids(await run_agent(mailer(deeds, THREE, "done"), "go")) == CALLS
