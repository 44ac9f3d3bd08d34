"""The core: a whole cycle against a bare loop, the import, and the memory of an idle agent."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from tempfile import TemporaryDirectory

from askfirst import Agent, AgentSpec, ApprovalResponse, run_agent, run_agent_resume, tool
from askfirst.messages import (
    AssistantMessage,
    Message,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolResultMessage,
    UserMessage,
)
from askfirst.models import ModelRequest
from benchmarks.measure import Figure, interleaved, python_calls

KILOBYTE = "x" * 1024


def figures() -> Iterator[Figure]:
    yield asyncio.run(cycle())
    yield asyncio.run(approve_calls())
    yield from imports()
    yield idle_agents()


@tool(effect="none")
async def fetch(key: str, limit: int = 1) -> str:
    """Fetch something."""
    return KILOBYTE


class TwoTurns:
    """A model without latency, for both loops: one tool call, then a text."""

    name = "two-turns"

    async def stream(self, request: ModelRequest) -> AsyncIterator[object]:
        if isinstance(request.messages[-1], UserMessage):
            yield ToolCallDelta(id="c1", name="fetch", args='{"key": "a"}')
            yield AssistantMessage((ToolCall("c1", "fetch", {"key": "a"}),), stop_reason="tool_use")
        else:
            yield TextDelta(text="done")
            yield AssistantMessage((TextPart("done"),))


async def bare(model: TwoTurns) -> str:
    """A loop written by hand: the same awaits, the same validation, the same messages, nothing else."""
    messages: list[Message] = [UserMessage("go")]
    while True:
        final: AssistantMessage | None = None
        async for item in model.stream(ModelRequest(tuple(messages), "", (fetch.schema,))):
            if isinstance(item, AssistantMessage):
                final = item
        assert final is not None
        messages.append(final)
        calls = final.tool_calls
        if not calls:
            return final.text
        for call in calls:
            args = fetch.parameters.model_validate(call.args)
            content = await fetch(**dict(args))
            messages.append(ToolResultMessage(call.id, call.name, content))


async def cycle() -> Figure:
    model = TwoTurns()

    async def ours() -> None:
        result = await Agent(model=model, tools=[fetch]).prompt("go")
        assert result.text == "done"

    async def by_hand() -> None:
        assert await bare(model) == "done"

    mine, theirs = await interleaved(ours, by_hand, rounds=40, per_round=50)
    note = f"{mine * 1e6:.0f} us against {theirs * 1e6:.0f} us"
    return Figure("prompt, tool call, result, text / a bare loop", mine / theirs, 5, note=note)


@tool(requires_approval=True)
async def charge(amount: int) -> str:
    """Charge a card."""
    return KILOBYTE


class CallThenDone:
    """A model without latency: one call of ``charge``, then a text."""

    name = "call-then-done"

    async def stream(self, request: ModelRequest) -> AsyncIterator[object]:
        if isinstance(request.messages[-1], UserMessage):
            yield AssistantMessage((ToolCall("c1", "charge", {"amount": 5}),), stop_reason="tool_use")
        else:
            yield AssistantMessage((TextPart("done"),))


async def approve_calls() -> Figure:
    """An approve cycle in memory: the run pauses as a portable value, a person approves, and the run is resumed."""
    spec = AgentSpec("bench", CallThenDone(), [charge])

    async def approve() -> None:
        paused = await run_agent(spec, "go")
        responses = [ApprovalResponse(id=each.id, decision="approve") for each in paused.pending_approvals]
        assert (await run_agent_resume(spec, paused.checkpoint, responses)).text == "done"

    return Figure(
        "Python calls of an approve cycle in memory", await python_calls(approve), 450, unit="calls"
    )


def imports() -> Iterator[Figure]:
    """Whole interpreters, started in turns, with compiled bytecode, as an installed package has it.

    A first round, which is not counted, writes the bytecode to a temporary folder. Otherwise Askfirst's modules would
    be compiled at each start, and pydantic's, which pip compiled, would not.
    """
    statements = (
        "import askfirst",
        "import pydantic",
        "from askfirst import Agent, tool",
        "import asyncio; from pydantic import BaseModel, TypeAdapter, create_model",
    )
    times: dict[str, list[float]] = {statement: [] for statement in statements}
    with TemporaryDirectory() as bytecode:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for counts in (False, *[True] * 15):
            for statement in statements:
                begin = time.perf_counter()
                subprocess.run([sys.executable, "-c", statement], check=True, env=env)
                if counts:
                    times[statement].append(time.perf_counter() - begin)
    ms = {statement: statistics.median(taken) * 1e3 for statement, taken in times.items()}
    lazy, pydantic, used, needed = (ms[statement] for statement in statements)
    yield Figure(
        "import askfirst / import pydantic", lazy / pydantic, 1.5, note=f"{lazy:.0f} ms, {pydantic:.0f} ms"
    )
    yield Figure(
        "from askfirst import Agent, tool / asyncio + pydantic",
        used / needed,
        1.8,
        note=f"{used:.0f} ms, {needed:.0f} ms",
    )


def idle_agents(count: int = 10_000) -> Figure:
    """Agents made by keyword, each with its own spec, two tools and a subscriber."""
    model = TwoTurns()

    @tool(effect="none")
    def other(key: str) -> str:
        """Do something else."""
        return key

    tools = [fetch, other]
    gc.collect()
    tracemalloc.start()
    agents = []
    for _ in range(count):
        agent = Agent(model=model, tools=tools, instructions="Be brief.")
        agent.subscribe(print)
        agents.append(agent)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Figure("memory of an idle agent", size / count / 1024, 6, unit="KB")
