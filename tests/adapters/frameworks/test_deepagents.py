"""deepagents: the gate's middleware before its tools, also those of a subagent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.langgraph_script import Desk, Model, calls, results
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from askfirst import Gate
from askfirst.adapters.langgraph import AskfirstMiddleware, langgraph_resumer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.workers import Worker

CONFIG: Any = {"configurable": {"thread_id": "t1"}}
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


async def test_a_call_is_asked_about_and_gone_on_with(store_url: str) -> None:
    desk, model = Desk(), Model(turns=[calls(("c1", {"cents": 5})), AIMessage("done")])
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        agent = create_deep_agent(
            model,
            [desk.tool],
            middleware=[AskfirstMiddleware(gate, ["charge"])],
            checkpointer=InMemorySaver(),
        )
        await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        [request] = await gate.pending()
        await gate.answer(
            request, {"decision": "edit", "edited_args": {"cents": 3, "currency": "EUR"}}, by="ada"
        )
        assert await Worker(store, {"langgraph": langgraph_resumer(agent)}).run_due() == 1
        state = await agent.aget_state(CONFIG)
    assert desk.charged == [3]
    assert results(state.values)[0][1].endswith("charged 3 EUR")
    assert state.values["messages"][-1].content == "done"


async def test_a_call_of_a_subagent(tmp_path: Path) -> None:
    desk = Desk()
    inner = Model(turns=[calls(("c1", {"cents": 7})), AIMessage("charged")])
    task = {"description": "charge it", "subagent_type": "payer"}
    outer = Model(turns=[calls(("c9", task), name="task"), AIMessage("done")])
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/a.db") as store, Gate(store) as gate:
        gated = AskfirstMiddleware(gate, ["charge"])
        payer: Any = {
            "name": "payer",
            "description": "Pays.",
            "system_prompt": "Pay.",
            "tools": [desk.tool],
            "model": inner,
            "middleware": [gated],
        }
        agent = create_deep_agent(outer, [], subagents=[payer], checkpointer=InMemorySaver())
        await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
        [request] = await gate.pending()
        assert desk.charged == []
        await gate.answer(request, {"decision": "approve"}, by="ada")
        await Worker(store, {"langgraph": langgraph_resumer(agent)}).run_due()
        state = await agent.aget_state(CONFIG)
    assert desk.charged == [7]
    assert state.values["messages"][-1].content == "done"
