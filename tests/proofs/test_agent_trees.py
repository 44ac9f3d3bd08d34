"""Random trees of agents, calls, decisions, orders of answers and restarts.

Every approved call runs once, every denied or unanswered one never, and the final transcript does not depend on
the order of the answers.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.deeds import Deeds, paused_at, pending_ids
from kit.random_trees import Tree, roots
from kit.stores import SHARED, Database
from kit.transcripts import assert_sound

from askfirst import Agent, AgentResult, ApprovalResponse, run_agent, run_agent_resume
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.ids import child_thread_id
from askfirst.messages import Message, ToolResultMessage

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
SLOW = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    max_examples=10,
)
Next = Callable[[AgentResult, list[ApprovalResponse]], Coroutine[Any, Any, AgentResult]]
orders = st.integers(0, 2**32).map(Random)  # Hypothesis' own `randoms()` would mostly give the same order
gates = st.sampled_from(["batch", "each"])
_numbers = itertools.count()


async def answer_all(tree: Tree, result: AgentResult, order: Random, go_on: Next) -> AgentResult:
    """Answer the calls as they become pending, some at a time, until nobody answers any more."""
    while result.status == "paused":
        ready = [each for each in pending_ids(result) if tree.says[each] != "never"]
        if not ready:
            break
        chosen = order.sample(ready, order.choice([1, 1, len(ready)]))
        result = await go_on(result, [tree.response(each) for each in chosen])
    return result


def check(tree: Tree, deeds: Deeds, result: AgentResult) -> None:
    """Assert that the expected deeds were done, each once, and no others."""
    expected, completes = tree.expected()
    assert sorted(deeds.done) == expected
    assert result.status == ("completed" if completes else "paused")
    if completes:
        assert_sound(result.messages)
    else:
        assert {tree.says[each] for each in pending_ids(result)} == {"never"}


def plain(messages: tuple[Message, ...]) -> list[Message]:
    """A transcript without the values that differ from thread to thread."""
    return [
        message.model_copy(update={"details": None})
        if isinstance(message, ToolResultMessage) and "thread_id" in (message.details or {})
        else message
        for message in messages
    ]


# In memory: the checkpoint is encoded as JSON at every step, and the agents are made anew.


async def in_memory(tree: Tree, order: Random) -> AgentResult:
    deeds = Deeds()

    async def go_on(result: AgentResult, responses: list[ApprovalResponse]) -> AgentResult:
        checkpoint = paused_at(result, *pending_ids(result))
        return await run_agent_resume(tree.spec(deeds), checkpoint, responses)

    result = await answer_all(tree, await run_agent(tree.spec(deeds), "go"), order, go_on)
    check(tree, deeds, result)
    return result


@QUICK
@given(roots, gates, orders)
def test_each_approved_call_runs_once_and_no_other_ever(root: Any, gate: str, order: Random) -> None:
    asyncio.run(in_memory(Tree(root, gate), order))


@settings(QUICK, max_examples=60)
@given(roots, orders, orders)
def test_the_transcript_does_not_depend_on_the_order_of_answers(
    root: Any, order: Random, other: Random
) -> None:
    tree = Tree(root)
    first, second = asyncio.run(in_memory(tree, order)), asyncio.run(in_memory(tree, other))
    assert plain(first.messages) == plain(second.messages)
    assert sorted(each.id for each in first.pending_approvals) == sorted(
        each.id for each in second.pending_approvals
    )


# On stores: a new agent for every step. Answers are given to `resume`, or settled in the store before it.


class Stored:
    """A run of a tree on a store that is opened again for each step, if the store outlives its process."""

    def __init__(self, tree: Tree, database: Database | None, order: Random) -> None:
        self.tree = tree
        self.database = database
        self.order = order
        self.deeds = Deeds()
        self.thread_id = f"t{next(_numbers)}"
        self.shared: Checkpointer | None = None

    async def run(self) -> AgentResult:
        async with AsyncExitStack() as stack:
            if self.database is None:
                self.shared = await stack.enter_async_context(MemoryCheckpointer())
            begun = await self._with_agent(lambda agent, _: agent.prompt("go"))
            result = await answer_all(self.tree, begun, self.order, self._go_on)
        check(self.tree, self.deeds, result)
        return result

    async def _go_on(self, result: AgentResult, responses: list[ApprovalResponse]) -> AgentResult:
        if self.order.random() < 0.5:
            return await self._with_agent(lambda agent, _: agent.resume_with(responses))
        paths = {each.id: (each.call_path, each.question_id) for each in result.pending_approvals}
        for response in responses:
            call_path, question_id = paths[response.id]
            thread_id = self.thread_id
            for call_id in call_path:
                thread_id = child_thread_id(thread_id, call_id)
            answer = response.answer_to("approve")
            await self._with_agent(
                lambda _, store, at=(thread_id, question_id), said=answer: store.settle(*at, said)
            )
        return await self._with_agent(lambda agent, _: agent.resume())

    async def _with_agent(self, work: Callable[[Agent, Checkpointer], Coroutine[Any, Any, Any]]) -> Any:
        spec = self.tree.spec(self.deeds)
        if self.shared is not None:
            agent = Agent.from_spec(spec, checkpointer=self.shared, thread_id=self.thread_id)
            return await work(agent, self.shared)
        assert self.database is not None
        async with self.database.checkpointer() as store:
            return await work(Agent.from_spec(spec, checkpointer=store, thread_id=self.thread_id), store)


@settings(QUICK, max_examples=40)
@given(roots, gates, orders)
def test_the_same_on_a_store(root: Any, gate: str, order: Random) -> None:
    asyncio.run(Stored(Tree(root, gate), None, order).run())


@settings(QUICK, max_examples=25)
@given(roots, orders, orders)
def test_the_stored_transcript_does_not_depend_on_the_order_of_answers(
    root: Any, order: Random, other: Random
) -> None:
    """Nor does it depend on whether there is a store."""
    tree = Tree(root)
    runs = [asyncio.run(Stored(tree, None, each).run()) for each in (order, other)]
    runs.append(asyncio.run(in_memory(tree, order)))
    assert plain(runs[0].messages) == plain(runs[1].messages) == plain(runs[2].messages)


@pytest.mark.parametrize("database", SHARED, indirect=True)
def test_the_same_after_a_restart_at_every_step(database: Database) -> None:
    @SLOW
    @given(roots, gates, orders)
    def over(root: Any, gate: str, order: Random) -> None:
        asyncio.run(Stored(Tree(root, gate), database, order).run())

    over()
