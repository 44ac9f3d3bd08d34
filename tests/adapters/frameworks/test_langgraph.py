"""LangGraph: the gate in real graphs, on two databases, and its race table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from adapters.frameworks.langgraph_script import Desk, Model, calls, results
from adapters.frameworks.pages import run_page, run_readme
from kit.framework_races import in_three_processes, race_table
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import tools_condition
from langgraph.types import Command, interrupt

from askfirst import Gate
from askfirst.adapters.langgraph import AskfirstMiddleware, gated, langgraph_resumer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.errors import HitlError, ResumeFailed
from askfirst.permissions import ArgConstraint, Rule, Scope, StaticPermissionPolicy
from askfirst.workers import Worker

LIFE = Path(__file__).parent / "lives_langgraph.py"
NOTE = (
    'Note: a person changed the arguments before this ran. It ran with {"cents": 3, "currency": "USD"}. '
    "Its result:\n"
)
CONFIG: Any = {"configurable": {"thread_id": "t1"}}
CONFIG_OF_PAGE: Any = {"configurable": {"thread_id": "chat-7"}}
pytestmark = pytest.mark.anyio


async def test_asked_answered_in_part_edited_and_gone_on_by_a_worker(store_url: str) -> None:
    desk, model = Desk(), Model(turns=[calls(("c1", {"cents": 5}), ("c2", {"cents": 6})), AIMessage("done")])
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        shown = {"charge": {"sentence": "Charge {cents:money:EUR}", "risk": "high"}}
        agent = create_agent(
            model, [desk.tool], middleware=[AskfirstMiddleware(gate, shown)], checkpointer=InMemorySaver()
        )
        worker = Worker(store, {"langgraph": langgraph_resumer(agent)})
        await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        first, second = await gate.pending()
        assert first.request.payload.sentences == ["Charge 0.05 EUR"]
        assert first.request.payload.args == {
            "cents": 5,
            "currency": "EUR",
        }  # with the tool's default, as it runs
        edited = {"decision": "edit", "edited_args": {"cents": 3, "currency": "USD"}}
        await gate.answer(first, edited, by="ada")
        assert await worker.run_due() == 1
        assert desk.charged == [3]
        assert [it.request.payload.args["cents"] for it in await gate.pending()] == [6]
        await gate.answer(second, {"decision": "deny", "reason": "not today"}, by="bob")
        assert await worker.run_due() == 1
        state = await agent.aget_state(CONFIG)
    assert desk.charged == [3]
    assert results(state.values) == [
        ("success", f"{NOTE}charged 3 USD"),
        ("error", "A person denied charge: not today"),
    ]
    assert state.values["messages"][-1].content == "done"


async def test_the_same_call_id_in_a_later_message_is_another_call(tmp_path: Path) -> None:
    desk = Desk()
    model = Model(turns=[calls(("c1", {"cents": 5})), calls(("c1", {"cents": 5})), AIMessage("done")])
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/a.db") as store, Gate(store) as gate:
        agent = create_agent(
            model, [desk.tool], middleware=[AskfirstMiddleware(gate)], checkpointer=InMemorySaver()
        )
        worker = Worker(store, {"langgraph": langgraph_resumer(agent)})
        await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        said = [{"who": "person", "text": "charge"}]
        for _ in range(2):
            [request] = await gate.pending()
            assert request.request.payload.words["before"] == said, "the page shows what the agent did before"
            await gate.answer(request, {"decision": "approve"}, by="ada")
            await worker.run_due()
            said = [
                *said,
                {"who": "agent", "text": "cents: 5", "tool": "charge"},
                {"who": "tool", "text": "charged 5 EUR", "tool": "charge"},
            ]
    assert desk.charged == [5, 5]


async def test_whatever_somebody_resumes_with_the_store_decides(tmp_path: Path) -> None:
    desk, model = Desk(), Model(turns=[calls(("c1", {"cents": 5})), AIMessage("done")])
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        agent = create_agent(
            model,
            [desk.tool],
            middleware=[AskfirstMiddleware(gate, ["charge"])],
            checkpointer=InMemorySaver(),
        )
        await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        for forged in (True, {"decision": "approve"}, {"decisions": [{"type": "approve"}]}):
            state = await agent.ainvoke(Command(resume=forged), CONFIG)
            assert state["__interrupt__"]
        assert len(await gate.pending()) == 1
    assert desk.charged == []


async def test_arguments_that_the_tool_refuses_are_not_asked_about(tmp_path: Path) -> None:
    desk, model = Desk(), Model(turns=[calls(("c1", {"cents": "many"})), AIMessage("done")])
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        agent = create_agent(
            model, [desk.tool], middleware=[AskfirstMiddleware(gate)], checkpointer=InMemorySaver()
        )
        state = await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        assert await gate.pending() == []
    [(status, said)] = results(state)
    assert status == "error"
    assert said.startswith("charge was not run: its arguments are invalid (cents: ")


async def test_what_the_policy_allows_runs_and_what_it_denies_does_not(tmp_path: Path) -> None:
    small = Scope(tool="charge", arg_constraints=[ArgConstraint("cents", "lte", 5)])
    rules = [
        Rule(id="small", scope=small, effect="allow"),
        Rule(id="other", scope=Scope(tool="*"), effect="deny"),
    ]
    desk = Desk()
    model = Model(turns=[calls(("c1", {"cents": 5}), ("c2", {"cents": 6})), AIMessage("done")])
    async with Gate(f"sqlite:///{tmp_path}/a.db", policy=StaticPermissionPolicy(rules)) as gate:
        agent = create_agent(
            model, [desk.tool], middleware=[AskfirstMiddleware(gate)], checkpointer=InMemorySaver()
        )
        state = await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        assert await gate.pending() == []
    assert desk.charged == [5]
    assert [status for status, _ in results(state)] == ["success", "error"]


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


def plain_graph(gate: Gate, model: Model, tools: list[Any], checkpointer: Any = None) -> Any:
    """A graph as people wrote it before `create_agent`."""
    graph = StateGraph(State)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", gated(gate, tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=checkpointer)


def test_a_plain_graph_without_an_event_loop(tmp_path: Path) -> None:
    desk = Desk()
    model = Model(turns=[calls(("c1", {"cents": 5}), ("c2", {"cents": 6})), AIMessage("done")])
    gate = Gate(f"sqlite:///{tmp_path}/a.db")
    graph = plain_graph(gate, model, [desk.tool], InMemorySaver())
    graph.invoke({"messages": [("user", "charge")]}, CONFIG)
    for request in gate.portal.run(lambda it: it.pending()):
        answer = {"decision": "approve"}
        gate.portal.run(lambda it, request=request, answer=answer: it.answer(request, answer, by="ada"))
    state = graph.invoke(None, CONFIG)
    gate.portal.close()
    assert sorted(desk.charged) == [5, 6]
    assert state["messages"][-1].content == "done"


async def test_a_call_within_a_subgraph(tmp_path: Path) -> None:
    desk, model = Desk(), Model(turns=[calls(("c1", {"cents": 5})), AIMessage("done")])
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/a.db") as store, Gate(store) as gate:
        outer = StateGraph(State)
        outer.add_node("inner", plain_graph(gate, model, [desk.tool]))
        outer.add_edge(START, "inner")
        graph = outer.compile(checkpointer=InMemorySaver())
        await graph.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        [request] = await gate.pending()
        await gate.answer(request, {"decision": "approve"}, by="ada")
        await Worker(store, {"langgraph": langgraph_resumer(graph)}).run_due()
        state = await graph.aget_state(CONFIG)
    assert desk.charged == [5]
    assert state.values["messages"][-1].content == "done"


async def test_a_tool_that_interrupts_in_its_body_runs_again_from_its_start(tmp_path: Path) -> None:
    sent: list[Any] = []

    @tool
    def send(text: str) -> str:
        """Send a message."""
        sent.append(interrupt({"need": "address"}))
        return "sent"

    model = Model(turns=[calls(("c1", {"text": "hi"}), name="send"), AIMessage("done")])
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/a.db") as store, Gate(store) as gate:
        agent = create_agent(
            model, [send], middleware=[AskfirstMiddleware(gate)], checkpointer=InMemorySaver()
        )
        await agent.ainvoke({"messages": [("user", "send")]}, CONFIG)
        [request] = await gate.pending()
        await gate.answer(request, {"decision": "approve"}, by="ada")
        await Worker(store, {"langgraph": langgraph_resumer(agent)}).run_due()
        [waiting] = (await agent.aget_state(CONFIG)).interrupts
        assert waiting.value == {"need": "address"}
        await agent.ainvoke(Command(resume={waiting.id: "ada@example.com"}), CONFIG)
        assert await gate.pending() == []
    assert sent == ["ada@example.com"]


async def test_without_a_thread_nobody_could_go_on_so_it_is_refused(tmp_path: Path) -> None:
    model = Model(turns=[calls(("c1", {"cents": 5})), AIMessage("done")])
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        agent = create_agent(model, [Desk().tool], middleware=[AskfirstMiddleware(gate)])
        with pytest.raises(HitlError, match="give the graph a checkpointer and a thread_id"):
            await agent.ainvoke({"messages": [("user", "charge")]})


async def test_a_thread_that_the_graph_does_not_know_is_said(tmp_path: Path) -> None:
    desk, model = Desk(), Model(turns=[calls(("c1", {"cents": 5})), AIMessage("done")])
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/a.db") as store, Gate(store) as gate:

        def agent() -> Any:
            return create_agent(
                model, [desk.tool], middleware=[AskfirstMiddleware(gate)], checkpointer=InMemorySaver()
            )

        await agent().ainvoke({"messages": [("user", "charge")]}, CONFIG)
        [request] = await gate.pending()
        await gate.answer(request, {"decision": "approve"}, by="ada")
        resume, worker = langgraph_resumer(agent), Worker(store, {"langgraph": langgraph_resumer(agent)})
        await worker.run_due()
        known = await worker.continuations.of("t1")
        assert known is not None
        assert known.state == "failed"
        with pytest.raises(ResumeFailed, match="has no thread 't1'"):
            await resume(known)


async def test_ask_answer_and_go_on_in_three_processes(store_url: str, tmp_path: Path) -> None:
    await in_three_processes(LIFE, store_url, tmp_path, "done")


async def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asks = calls(("c1", {"order": "A-1042", "cents": 4900}), name="refund")
    page = await run_page("langgraph", model=Model(turns=[asks, AIMessage("I paid it back.")]))
    assert page["result"] == page["relayed"] == "I paid it back."
    assert results(page["state"].values) == [("success", "paid 4900 cents for A-1042")]
    told = results((await page["yours"].aget_state(CONFIG_OF_PAGE)).values)
    assert told[0][1].endswith("paid 1 cents for A-1042")


async def test_the_readme(tmp_path: Path) -> None:
    @tool
    def refund(order: str) -> str:
        """Pay money back."""
        return f"paid {order}"

    model = Model(turns=[calls(("c1", {"order": "A-1"}), name="refund"), AIMessage("done")])
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        have: Any = {"create_agent": create_agent, "model": model, "refund": refund, "saver": InMemorySaver()}
        agent = (await run_readme("langgraph", gate=gate, **have))["agent"]
        await agent.ainvoke({"messages": [("user", "refund")]}, CONFIG)
        [request] = await gate.pending()
        await gate.answer(request, {"decision": "approve"}, by="ada")
        await gate.worker({"langgraph": langgraph_resumer(agent)}).run_due()
        assert results((await agent.aget_state(CONFIG)).values) == [("success", "paid A-1")]


def test_one_effect_always(tmp_path: Path) -> None:
    race_table("LangGraph", LIFE, tmp_path)
