"""One life of a LangGraph agent: asks, is answered, goes on, each in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from kit.framework_races import answer, at_the_line, go_on, say, write_effect
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from askfirst import Gate
from askfirst.adapters.langgraph import AskfirstMiddleware, langgraph_resumer
from askfirst.checkpointer.connect import checkpointer_from_url

NAME = "LangGraph"
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1"}}
FOLDER = Path(os.environ["LIFE_FOLDER"])
IS_OURS = os.environ["LIFE_SIDE"] == "ours"


class Model(BaseChatModel):
    """Calls the tool once or twice, then says that it is done: told by the messages, as in any process."""

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        results = [it for it in messages if isinstance(it, ToolMessage)]
        calls = [
            {"name": "charge", "args": {"cents": 5 + place}, "id": f"call_{place}", "type": "tool_call"}
            for place in range(int(os.environ["LIFE_CALLS"]))
        ]
        said = AIMessage("done") if results else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@tool
def charge(cents: int) -> str:
    """Charge the customer."""
    write_effect("charge", cents)
    return f"charged {cents}"


async def alter(saver: AsyncSqliteSaver) -> None:
    """Change the arguments in the graph's own storage, as somebody with access to its database could."""
    await saver.setup()
    changed = 0
    for table, column in (("checkpoints", "checkpoint"), ("writes", "value")):
        rows = await (await saver.conn.execute(f"SELECT rowid, type, {column} FROM {table}")).fetchall()  # noqa: S608
        for rowid, kind, blob in rows:
            loaded = saver.serde.loads_typed((kind, blob))
            if _altered(loaded):
                changed += 1
                statement = f"UPDATE {table} SET type = ?, {column} = ? WHERE rowid = ?"  # noqa: S608
                await saver.conn.execute(statement, (*saver.serde.dumps_typed(loaded), rowid))
    await saver.conn.commit()
    assert changed


def _altered(value: Any) -> bool:
    """Change the cents wherever they are: in messages, and in what waits to be run."""
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = list(value.values())
        if "cents" in value:
            value["cents"] = 9999
            return True
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif hasattr(value, "arg"):
        parts = [value.arg]
    elif hasattr(value, "tool_calls"):
        parts = [value.tool_calls]
    return sum(_altered(it) for it in parts) > 0  # all of them, not only the first


async def main(verb: str) -> None:
    """Do one thing and say how the run stands."""
    async with AsyncSqliteSaver.from_conn_string(str(FOLDER / "graph.db")) as saver:
        if verb == "alter":
            await alter(saver)
            return
        store = checkpointer_from_url(os.environ["LIFE_STORE"], lease_seconds=2)
        async with store, Gate(store) as gate:
            ours = [AskfirstMiddleware(gate, ["charge"])]
            native = [HumanInTheLoopMiddleware(interrupt_on={"charge": True}, interrupt_mode="per_call")]
            agent = create_agent(
                Model(), [charge], middleware=ours if IS_OURS else native, checkpointer=saver
            )
            if verb == "ask":
                await agent.ainvoke({"messages": [("user", "charge")]}, CONFIG)
            elif IS_OURS and verb in ("press", "go_on"):
                if verb == "press":
                    await answer(gate)
                await go_on(store, {"langgraph": langgraph_resumer(agent)})
            else:
                await resume(agent)
            state = await agent.aget_state(CONFIG)
            say(paused=bool(state.interrupts), text=str(state.values["messages"][-1].content))


async def resume(agent: Any) -> None:
    """Resume with an approval, as the framework has it."""
    state = await agent.aget_state(CONFIG)
    waiting = [it.id for it in state.interrupts]
    waiting = waiting[:1] if os.environ.get("LIFE_ONLY") else waiting
    at_the_line()
    approval = {it: {"type": "approve"} for it in waiting}
    await agent.ainvoke(Command(resume=approval) if waiting else None, CONFIG)


asyncio.run(main(sys.argv[1]))
