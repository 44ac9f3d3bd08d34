"""A run of LangChain's agent, without the gate and with its middleware."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from adapters.frameworks.langgraph_script import Model, calls
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from askfirst import Gate
from askfirst.adapters.langgraph import AskfirstMiddleware


@tool
def charge(cents: int) -> str:
    """Charge the customer."""
    return f"charged {cents}"


def work(gate: Gate | None) -> Callable[[], Awaitable[object]]:
    """One run, on a new thread, which is deleted afterwards."""
    saver = InMemorySaver()
    model = Model(turns=[calls(("c1", {"cents": 5})), AIMessage("done")])
    middleware: list[Any] = [] if gate is None else [AskfirstMiddleware(gate)]
    agent = create_agent(model, [charge], middleware=middleware, checkpointer=saver)

    async def run() -> None:
        thread_id = secrets.token_hex(8)
        state = await agent.ainvoke(
            {"messages": [("user", "charge")]}, {"configurable": {"thread_id": thread_id}}
        )
        assert state["messages"][-2].content == "charged 5"
        saver.delete_thread(thread_id)

    return run
