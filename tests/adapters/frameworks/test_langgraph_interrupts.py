"""InterruptRelay: interrupts of graphs that know nothing of the gate, answered by people, resumed by a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from adapters.frameworks.langgraph_script import Desk, Model, calls, results
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

from askfirst import Gate
from askfirst.adapters.langgraph_interrupts import InterruptRelay
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.errors import HitlError, HitlInvalidAnswer
from askfirst.workers import Worker

CONFIG: Any = {"configurable": {"thread_id": "t1"}}
APPROVE = {"decision": "approve"}
pytestmark = pytest.mark.anyio


def agent_of(desk: Desk, mode: Any, **config: Any) -> Any:
    """An agent as LangChain's documentation has it."""
    turns = [calls(("c1", {"cents": 5}), ("c2", {"cents": 6})), AIMessage("done")]
    hitl = HumanInTheLoopMiddleware(interrupt_on={"charge": config or True}, interrupt_mode=mode)
    return create_agent(Model(turns=turns), [desk.tool], middleware=[hitl], checkpointer=InMemorySaver())


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_calls_of_langchains_middleware(store_url: str, mode: str) -> None:
    desk = Desk()
    agent = agent_of(desk, mode)
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        relay = InterruptRelay(gate)
        worker = Worker(store, {"langgraph-interrupts": relay.resumer(agent)})
        await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        assert len(await relay.open(agent, CONFIG)) == 2
        assert len(await relay.open(agent, CONFIG)) == 2
        first, second = await gate.pending()
        assert first.request.payload.args == {"cents": 5}
        await gate.answer(first, {"decision": "edit", "edited_args": {"cents": 3}}, by="ada")
        await worker.run_due()
        assert desk.charged == ([] if mode == "batched" else [3])
        await gate.answer(second, {"decision": "deny", "reason": "not today"}, by="bob")
        await worker.run_due()
        state = await agent.aget_state(CONFIG)
        assert await relay.open(agent, CONFIG) == []
    assert desk.charged == [3]
    told = results(state.values)
    assert any("charged 3 EUR" in said for _, said in told)
    assert any("not today" in said for _, said in told)
    assert state.values["messages"][-1].content == "done"


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_an_edit_that_the_graph_does_not_allow_is_refused_when_it_is_made(
    tmp_path: Path, mode: str
) -> None:
    agent = agent_of(Desk(), mode, allowed_decisions=["approve", "reject"])
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        await InterruptRelay(gate).open(agent, CONFIG)
        request, _ = await gate.pending()
        with pytest.raises(HitlInvalidAnswer):
            await gate.answer(request, {"decision": "edit", "edited_args": {"cents": 3}}, by="ada")


async def test_an_edit_is_checked_by_the_tools_schema(tmp_path: Path) -> None:
    agent = agent_of(Desk(), "per_call")
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        await InterruptRelay(gate).open(agent, CONFIG)
        request, _ = await gate.pending()
        with pytest.raises(HitlInvalidAnswer, match="cents"):
            await gate.answer(request, {"decision": "edit", "edited_args": {"cents": "many"}}, by="ada")


class Contact(BaseModel):
    """What the graph asks for."""

    name: str
    age: int


class State(TypedDict, total=False):
    said: list[Any]


def graph_of(*nodes: Any) -> Any:
    """A graph of nodes that interrupt, one after another."""
    graph = StateGraph(State)
    for place, node in enumerate(nodes):
        graph.add_node(f"n{place}", node)
        graph.add_edge(START if place == 0 else f"n{place - 1}", f"n{place}")
    return graph.compile(checkpointer=InMemorySaver())


async def test_bare_interrupts_one_after_another(store_url: str) -> None:
    def text(state: State) -> State:
        return {"said": [interrupt("Which city?")]}

    def typed(state: State) -> State:
        first = interrupt("Go on?", response_schema=bool)
        contact = interrupt({"need": "contact"}, response_schema=Contact)
        return {"said": [*state["said"], first, contact]}

    graph = graph_of(text, typed)
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        relay = InterruptRelay(gate)
        worker = Worker(store, {"langgraph-interrupts": relay.resumer(graph)})
        await graph.ainvoke({}, CONFIG)
        [waits] = await relay.open(graph, CONFIG)
        assert waits.request.payload.sentences == ["Which city?"]
        answers: list[Any] = [
            {"answer": "Kyoto"},
            True,
            {"name": "Ada", "age": "many"},
            {"name": "Ada", "age": "36"},
        ]
        for answer in answers:
            [request] = await gate.pending()
            await gate.answer(request, answer, by="ada")
            assert await worker.run_due() == 1
        assert await gate.pending() == []
        said = (await graph.aget_state(CONFIG)).values["said"]
    assert said[:2] == ["Kyoto", True]
    assert dict(said[2]) == {"name": "Ada", "age": 36}


async def test_agent_inbox(tmp_path: Path) -> None:
    def node(state: State) -> State:
        request = {
            "action_request": {"action": "send", "args": {"to": "ada"}},
            "config": {
                "allow_accept": True,
                "allow_edit": True,
                "allow_respond": True,
                "allow_ignore": False,
            },
            "description": "Send it?",
        }
        return {"said": [interrupt([request])[0]]}

    graph = graph_of(node)
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/a.db") as store, Gate(store) as gate:
        relay = InterruptRelay(gate)
        await graph.ainvoke({}, CONFIG)
        await relay.open(graph, CONFIG)
        [request] = await gate.pending()
        await gate.answer(request, {"decision": "edit", "edited_args": {"to": "bob"}}, by="ada")
        await Worker(store, {"langgraph-interrupts": relay.resumer(lambda: graph)}).run_due()
        said = (await graph.aget_state(CONFIG)).values["said"]
    assert said == [{"type": "edit", "args": {"action": "send", "args": {"to": "bob"}}}]


async def test_a_question_that_was_cancelled_leaves_the_graph_where_it_is(tmp_path: Path) -> None:
    graph = graph_of(lambda state: {"said": [interrupt("Which city?")]})
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/a.db") as store, Gate(store) as gate:
        relay = InterruptRelay(gate)
        await graph.ainvoke({}, CONFIG)
        await relay.open(graph, CONFIG)
        [request] = await gate.pending()
        await gate.cancel(request, "nobody knows", by="ada")
        await Worker(store, {"langgraph-interrupts": relay.resumer(graph)}).run_due()
        state = await graph.aget_state(CONFIG)
    assert [it.value for it in state.interrupts] == ["Which city?"]


def test_without_an_event_loop(tmp_path: Path) -> None:
    desk = Desk()
    agent = agent_of(desk, "per_call")
    gate = Gate(f"sqlite:///{tmp_path}/a.db")
    relay = InterruptRelay(gate)
    agent.invoke({"messages": [("user", "charge")]}, CONFIG)
    waiting = relay.open_here(agent, CONFIG)
    assert [it.request.payload.args for it in waiting] == [{"cents": 5}, {"cents": 6}]
    gate.portal.close()
    with pytest.raises(HitlError, match="give the graph's configuration a thread_id"):
        relay.open_here(agent, {})
