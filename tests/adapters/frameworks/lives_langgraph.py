"""One life of a LangGraph agent: asks, is answered, goes on, each in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from kit.framework_races import answer, go_on, say, write_effect
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
    agent = create_agent(Model(), [charge], checkpointer=saver)
    state = await agent.aget_state(CONFIG)
    for message in state.values["messages"]:
        for call in getattr(message, "tool_calls", None) or []:
            call["args"]["cents"] = 9999
    saved = await saver.aget_tuple(CONFIG)
    assert saved is not None
    saved.checkpoint["channel_values"]["messages"] = state.values["messages"]
    kind, blob = saver.serde.dumps_typed(saved.checkpoint)
    await saver.conn.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", (kind, blob))
    rows = await (await saver.conn.execute("SELECT rowid, type, value FROM writes")).fetchall()
    for rowid, kind, value in rows:  # what waits to be run carries the calls as well
        loaded = saver.serde.loads_typed((kind, value))
        if _altered(loaded):
            kind, blob = saver.serde.dumps_typed(loaded)
            await saver.conn.execute(
                "UPDATE writes SET type = ?, value = ? WHERE rowid = ?", (kind, blob, rowid)
            )
    await saver.conn.commit()


def _altered(value: Any) -> bool:
    found = False
    if isinstance(value, dict):
        if "cents" in value:
            value["cents"], found = 9999, True
        for part in value.values():
            found = _altered(part) or found
    elif isinstance(value, list | tuple):
        for part in value:
            found = _altered(part) or found
    elif hasattr(value, "arg"):
        found = _altered(value.arg)
    elif hasattr(value, "tool_calls"):
        found = _altered(value.tool_calls)
    return found


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
    approval = {it: {"type": "approve"} for it in waiting}
    await agent.ainvoke(Command(resume=approval) if waiting else None, CONFIG)


asyncio.run(main(sys.argv[1]))
