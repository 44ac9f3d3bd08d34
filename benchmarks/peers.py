"""The same approve cycle with Askfirst and with its peers, in one run: pause, a person approves, resume.

Each ``benchmarks/peer_*.py`` is one peer, used as its users would use it; its functions yield one or more `Ways`.
Askfirst is compared with the fastest way of all peers.
"""

from __future__ import annotations

import asyncio
import importlib
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from askfirst import Agent, AgentSpec, ApprovalResponse, run_agent, run_agent_resume, tool
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.messages import AssistantMessage, TextPart, ToolCall
from askfirst.models import ModelRequest
from benchmarks.measure import Figure, interleaved
from benchmarks.own_database import own_database

Work = Callable[[], Awaitable[object]]
Ways = dict[str, Work]
"""By name: a function that runs one approve cycle and checks its result."""

KILOBYTE = "x" * 1024
AT_ONCE = 64
TURNS = 1000
WITH_A_STORE = ("agno", "langgraph")
"""The peers that have a store for paused runs."""
PEERS = (*WITH_A_STORE, "openai_agents", "pydantic_ai")
_MODULES = (
    "agents",
    "agno",
    "langchain",
    "langgraph.checkpoint.postgres",
    "langgraph.checkpoint.sqlite",
    "pydantic_ai",
)


def installed() -> bool:
    """Whether all peers are installed; they are not imported."""
    try:
        return all(find_spec(name) for name in _MODULES)
    except ModuleNotFoundError:  # the parent package is missing
        return False


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield asyncio.run(in_memory())
        yield from asyncio.run(on_sqlite(folder))
        yield asyncio.run(on_postgres())
        yield asyncio.run(after_many_turns(folder))


async def in_memory() -> Figure:
    async with AsyncExitStack() as stack:
        peers = await _opened(stack, PEERS, "in_memory")
        ours, theirs = await _measured(cycle_in_memory, peers, rounds=25, per_round=10)
    return _figure("in memory: the fastest peer's approve cycle / ours", ours, theirs, 5)


async def on_sqlite(folder: Path) -> list[Figure]:
    async with AsyncExitStack() as stack:
        peers = await _opened(stack, WITH_A_STORE, "sqlite", folder)
        store = await stack.enter_async_context(SQLiteCheckpointer(folder / "askfirst.db"))

        async def askfirst() -> None:
            await cycle(store, secrets.token_hex(8))

        alone = await _measured(askfirst, peers, rounds=15, per_round=4)
        many = {name: _at_once(work) for name, work in peers.items()}
        together = await _measured(_at_once(askfirst), many, rounds=5, per_round=1)
    return [
        _figure("SQLite: the fastest peer's approve cycle / ours", *alone, 4),
        _figure(f"SQLite, {AT_ONCE} at once: our throughput / the best peer's", *together, 20, of=AT_ONCE),
    ]


async def on_postgres() -> Figure:
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(own_database("peers"))
        peers = await _opened(stack, WITH_A_STORE, "postgres", dsn)
        store = await stack.enter_async_context(PostgresCheckpointer(dsn))

        async def askfirst() -> None:
            await cycle(store, secrets.token_hex(8))

        ours, theirs = await _measured(askfirst, peers, rounds=15, per_round=5)
    return _figure("PostgreSQL: the fastest peer's approve cycle / ours", ours, theirs, 2.5)


async def after_many_turns(folder: Path) -> Figure:
    """One more turn on a thread with a thousand turns; the model gets all of them."""
    async with AsyncExitStack() as stack:
        peers = await _opened(stack, WITH_A_STORE, "after_turns", folder, TURNS)
        store = await stack.enter_async_context(SQLiteCheckpointer(folder / "askfirst-long.db"))
        await prepare_turns(store, "long", TURNS)
        ours, theirs = await _measured(lambda: cycle(store, "long"), peers, rounds=7, per_round=1)
    return _figure(f"SQLite, {TURNS:,} turns: the fastest peer's cycle / ours", ours, theirs, 4)


# Askfirst's side.


class Model:
    """A model without latency: one call of ``charge``, then a text."""

    name = "call-then-done"

    async def stream(self, request: ModelRequest) -> Any:
        if request.messages[-1].role == "user":
            call = ToolCall(secrets.token_hex(8), "charge", {"amount": 5})
            yield AssistantMessage((call,), stop_reason="tool_use")
        else:
            yield AssistantMessage((TextPart("done"),))


@tool(requires_approval=True)
async def charge(amount: int) -> str:
    """Charge a card."""
    return KILOBYTE


SPEC = AgentSpec("bench", Model(), [charge])


async def cycle_in_memory() -> None:
    """The pause is a portable value, as with the peers; nothing is written to a store."""
    paused = await run_agent(SPEC, "go")
    responses = [ApprovalResponse(id=each.id, decision="approve") for each in paused.pending_approvals]
    result = await run_agent_resume(SPEC, paused.checkpoint, responses)
    assert (result.text, result.messages[-2].text) == ("done", KILOBYTE)


async def cycle(store: Any, thread_id: str) -> None:
    """A prompt that pauses, a person's answer settled in the store, and a new agent that resumes."""
    paused = await Agent.from_spec(SPEC, checkpointer=store, thread_id=thread_id).prompt("go")
    call = paused.messages[-1].tool_calls[0]
    await store.settle(thread_id, call.id, {"decision": "approve"}, by="ann", via="bench")
    result = await Agent.from_spec(SPEC, checkpointer=store, thread_id=thread_id).resume()
    assert (result.text, result.messages[-2].text) == ("done", KILOBYTE)


async def prepare_turns(store: Any, thread_id: str, turns: int) -> None:
    """Run ``turns`` cycles with one agent; a new agent for each would load the whole transcript each time."""
    agent = Agent.from_spec(SPEC, checkpointer=store, thread_id=thread_id)
    for _ in range(turns):
        call = (await agent.prompt("go")).messages[-1].tool_calls[0]
        await store.settle(thread_id, call.id, {"decision": "approve"}, by="ann", via="bench")
        assert (await agent.resume()).text == "done"


# Side by side.


async def _opened(stack: AsyncExitStack, names: tuple[str, ...], place: str, *args: Any) -> Ways:
    """All ways of these peers to run the cycle, opened. ``place`` is a function of each peer's module, such as
    ``sqlite``."""
    ways: Ways = {}
    for name in names:
        peer = importlib.import_module(f"benchmarks.peer_{name}")
        opened: AbstractAsyncContextManager[Ways] = getattr(peer, place)(*args)
        ways |= await stack.enter_async_context(opened)
    return ways


def _at_once(work: Work) -> Work:
    async def run() -> None:
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    return run


async def _measured(
    askfirst: Work, peers: Ways, *, rounds: int, per_round: int
) -> tuple[float, dict[str, float]]:
    """Askfirst's seconds, and the seconds of each way of the peers, the fastest first."""
    ours, *theirs = await interleaved(askfirst, *peers.values(), rounds=rounds, per_round=per_round)
    times = zip(peers, theirs, strict=True)
    return ours, dict(sorted(times, key=lambda pair: pair[1]))


def _figure(name: str, ours: float, theirs: dict[str, float], budget: float, *, of: int = 0) -> Figure:
    """How many times as fast as the fastest peer; with ``of``, the times are for that many cycles at once."""

    def shown(seconds: float) -> str:
        return f"{of / seconds:,.0f}/s" if of else f"{seconds * 1e3:.2f} ms"

    (fastest, time), *rest = theirs.items()
    others = "; ".join(f"{way} {shown(seconds)}" for way, seconds in rest)
    note = f"{shown(ours)} against {shown(time)} by {fastest} ({others})"
    return Figure(name, time / ours, budget, at_least=True, note=note)
