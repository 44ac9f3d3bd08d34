"""The approve cycle as LangGraph's users write it: LangChain's agent with its human-in-the-loop middleware.

One warm graph, on LangGraph's own checkpointers. Measured with its defaults, and with ``durability="exit"``: then it
writes only at the pause and at the end, and a crash in between loses the work.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers import KILOBYTE, Ways

APPROVE = Command(resume={"decisions": [{"type": "approve"}]})
DEFAULT: dict[str, Any] = {}
ON_EXIT: dict[str, Any] = {"durability": "exit"}
CONNECTION = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


@asynccontextmanager
async def in_memory() -> AsyncIterator[Ways]:
    saver = InMemorySaver()
    graph = _graph(saver)

    async def cycle_and_delete() -> None:
        """Delete each thread, so that stored threads do not slow down the next one."""
        thread_id = secrets.token_hex(8)
        await _cycle(graph, thread_id, DEFAULT)
        saver.delete_thread(thread_id)

    yield {"langgraph": cycle_and_delete}


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Ways]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        yield _stored(_graph(saver))


@asynccontextmanager
async def postgres(dsn: str) -> AsyncIterator[Ways]:
    async with AsyncConnectionPool(dsn, open=False, kwargs=CONNECTION) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield _stored(_graph(saver))


@asynccontextmanager
async def after_turns(folder: Path, turns: int) -> AsyncIterator[Ways]:
    """The earlier turns are given in one prompt: run one by one, they would write gigabytes of copies.

    The delta channel, which is in beta, writes only what is new instead of the whole transcript.
    """

    async def grown(graph: Any, durability: dict[str, Any]) -> Callable[[], Awaitable[None]]:
        thread_id = secrets.token_hex(8)
        before = [message for _ in range(turns - 1) for message in _turn()]
        await _cycle(graph, thread_id, durability, before)
        return lambda: _cycle(graph, thread_id, durability)

    async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph-long.db")) as saver:
        plain, delta = _graph(saver), _graph(saver, state_schema=_DeltaState)
        yield {
            "langgraph": await grown(plain, DEFAULT),
            "langgraph, exit": await grown(plain, ON_EXIT),
            "langgraph, delta channel": await grown(delta, DEFAULT),
            "langgraph, delta channel, exit": await grown(delta, ON_EXIT),
        }


def _stored(graph: Any) -> Ways:
    return {
        "langgraph": lambda: _cycle(graph, secrets.token_hex(8), DEFAULT),
        "langgraph, exit": lambda: _cycle(graph, secrets.token_hex(8), ON_EXIT),
    }


async def _cycle(
    graph: Any, thread_id: str, durability: dict[str, Any], before: list[Any] | None = None
) -> None:
    config = {"configurable": {"thread_id": thread_id}}
    prompt = {"messages": [*(before or ()), HumanMessage("go")]}
    paused = await graph.ainvoke(prompt, config, **durability)
    assert "__interrupt__" in paused
    result = await graph.ainvoke(APPROVE, config, **durability)
    assert [message.content for message in result["messages"][-2:]] == [KILOBYTE, "done"]


def _turn() -> list[Any]:
    call = _call()
    return [
        HumanMessage("go"),
        call,
        ToolMessage(KILOBYTE, tool_call_id=call.tool_calls[0]["id"]),
        AIMessage("done"),
    ]


def _call() -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "charge", "args": {"amount": 5}, "id": secrets.token_hex(8)}])


class _Model(BaseChatModel):
    """A model without latency: one call of ``charge``, then a text."""

    @property
    def _llm_type(self) -> str:
        return "call-then-done"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage("done") if isinstance(messages[-1], ToolMessage) else _call()
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages)


@tool
async def charge(amount: int) -> str:
    """Charge a card."""
    return KILOBYTE


class _DeltaState(AgentState):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


def _graph(saver: Any, **settings: Any) -> Any:
    people = HumanInTheLoopMiddleware(interrupt_on={"charge": True})
    return create_agent(_Model(), [charge], middleware=[people], checkpointer=saver, **settings)
