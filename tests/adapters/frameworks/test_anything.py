"""The decorator of the gate in frameworks that have no adapter: smolagents, DSPy, LlamaIndex, and a plain loop."""

from __future__ import annotations

import asyncio
import json
import queue
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM
from kit.paths import ROOT
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage as LlamaMessage
from llama_index.core.base.llms.types import MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms import MockFunctionCallingLLM
from smolagents import ToolCallingAgent, tool
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    Model,
)
from smolagents.models import (
    MessageRole as SmolRole,
)

from askfirst import Denied, Gate, Pending, SyncGate

pytestmark = pytest.mark.filterwarnings("ignore")  # the imports of these frameworks warn of much
PAGE = ROOT / "docs" / "guide" / "frameworks" / "anything-else.md"
_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class SmolScript(Model):
    """Calls the tool once, then gives its result, or what was said of its failure, as the answer."""

    def __init__(self, order: str) -> None:
        super().__init__(model_id="scripted")
        self.order = order

    def generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatMessage:
        said = [part["text"] for it in messages for part in it.content or [] if part.get("text")]
        results = [it for it in said if it.startswith(("Observation:", "Call id:", "Error:"))]
        name, arguments = "refund", {"order": self.order, "cents": 4900}
        if results:
            name, arguments = "final_answer", {"answer": results[-1]}
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(id=f"call_{len(messages)}", type="function", function=function)
        return ChatMessage(role=SmolRole.ASSISTANT, content="", tool_calls=[call])


def dspy_script(order: str) -> DummyLM:
    """The same for DSPy, which asks for a thought, a tool and its arguments."""
    call = {"order": order, "cents": 4900}
    return DummyLM(
        [
            {"next_thought": "pay", "next_tool_name": "refund", "next_tool_args": json.dumps(call)},
            {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": "{}"},
            {"reasoning": "it is paid", "answer": "done"},
        ]
    )


def llama_script(order: str, name: str = "refund_async") -> MockFunctionCallingLLM:
    """The same for LlamaIndex."""

    def respond(messages: Any, **_: Any) -> LlamaMessage:
        results = [str(it.content) for it in messages if it.role == MessageRole.TOOL]
        if results:
            return LlamaMessage(role=MessageRole.ASSISTANT, blocks=[TextBlock(text=results[-1])])
        call = ToolCallBlock(
            tool_call_id="call_1", tool_name=name, tool_kwargs={"order": order, "cents": 4900}
        )
        return LlamaMessage(role=MessageRole.ASSISTANT, blocks=[call])

    return MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)


def in_smolagents(function: Callable[..., Any]) -> str:
    agent = ToolCallingAgent(tools=[tool(function)], model=SmolScript("A-1"), verbosity_level=0, max_steps=3)
    return str(agent.run("pay"))


def in_dspy(function: Callable[..., Any]) -> str:
    with dspy.context(lm=dspy_script("A-1")):
        return str(dspy.ReAct("question -> answer", tools=[function])(question="pay").trajectory)


def in_llama_index(function: Callable[..., Any]) -> str:
    async def main() -> str:
        agent = FunctionAgent(tools=[function], llm=llama_script("A-1", "refund"), streaming=False)
        return str(await agent.run("pay"))

    return asyncio.run(main())


def in_a_loop(function: Callable[..., Any]) -> str:
    try:
        return str(function(order="A-1", cents=4900))
    except Denied as denied:
        return str(denied)


worlds = pytest.mark.parametrize("world", [in_a_loop, in_smolagents, in_dspy, in_llama_index])


class Till:
    """A guarded function for a framework, and its effects; async for a framework that runs in an event loop."""

    def __init__(self, gate: Gate, world: Callable[..., str], **options: Any) -> None:
        self.paid: list[tuple[str, int]] = []

        def refund(order: str, cents: int) -> str:
            """Pay money back.

            Args:
                order: the number of the order
                cents: how much
            """
            self.paid.append((order, cents))
            return f"paid back {cents} for {order}"

        async def refund_async(order: str, cents: int) -> str:
            """Pay money back."""
            return refund(order, cents)

        refund_async.__name__ = "refund"
        chosen: Callable[..., Any] = refund_async if world is in_llama_index else refund
        self.refund = gate.guarded(key=lambda order, cents: f"refund:{order}", **options)(chosen)


@contextmanager
def person(url: str, gate: Gate, answer: dict[str, Any]) -> Iterator[list[Any]]:
    """Somebody in another thread, who answers whatever the gate asks."""
    asked: queue.Queue[Any] = queue.Queue()
    seen: list[Any] = []
    stop = gate.on_opened(asked.put)

    def answering() -> None:
        with SyncGate(url) as desk:
            while (request := asked.get()) is not None:
                seen.append(request)
                desk.answer(request, answer, by="ada")

    thread = threading.Thread(target=answering)
    thread.start()
    try:
        yield seen
    finally:
        stop()
        asked.put(None)
        thread.join()


@worlds
def test_an_approval_runs_once_however_often_the_agent_runs(
    store_url: str, world: Callable[..., str]
) -> None:
    gate = Gate(store_url)
    till = Till(gate, world)
    with person(store_url, gate, {"decision": "approve"}) as asked:
        for _ in range(2):
            assert "paid back 4900 for A-1" in world(till.refund)
    assert (len(asked), till.paid) == (1, [("A-1", 4900)])
    gate.portal.close()


@worlds
def test_a_denial_is_told_and_an_edit_is_what_runs(store_url: str, world: Callable[..., str]) -> None:
    gate = Gate(store_url)
    till = Till(gate, world)
    with person(store_url, gate, {"decision": "deny", "reason": "not today"}):
        assert "not today" in world(till.refund)
    assert till.paid == []
    other = Till(gate, world)
    other.refund = _rekeyed(gate, other)
    with person(store_url, gate, {"decision": "edit", "edited_args": {"order": "A-1", "cents": 3}}):
        assert "paid back 3 for A-1" in world(other.refund)
    assert other.paid == [("A-1", 3)]
    gate.portal.close()


def _rekeyed(gate: Gate, till: Till) -> Callable[..., Any]:
    """The same function under other keys."""
    inner = till.refund.__wrapped__  # type: ignore[attr-defined]
    return gate.guarded(key=lambda order, cents: f"again:{order}")(inner)


@worlds
@pytest.mark.timeout(300)
def test_pending_stops_the_run_and_the_next_one_finds_the_decision(
    store_url: str, world: Callable[..., str]
) -> None:
    gate = Gate(store_url)
    till = Till(gate, world, wait=0)
    for _ in range(2):
        with pytest.raises(Pending):
            world(till.refund)
    with SyncGate(store_url) as desk:
        [request] = desk.pending()
        desk.answer(request, {"decision": "approve"}, by="ada")
    assert "paid back 4900 for A-1" in world(till.refund)
    assert till.paid == [("A-1", 4900)]
    gate.portal.close()


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, *blocks = _BLOCK.findall(PAGE.read_text("utf-8"))
    found: dict[str, Any] = {"__name__": "page_anything_else"}
    found |= {
        "smol_model": SmolScript("A-2"),
        "dspy_model": dspy_script("A-3"),
        "llama_model": llama_script("A-4"),
    }
    source = tmp_path / "page.py"  # smolagents reads the source of a tool
    source.write_text(first)
    exec(compile(first, str(source), "exec"), found)  # noqa: S102  (our own page)
    url = "sqlite:///askfirst.db"
    with person(url, found["gate"], {"decision": "approve"}) as asked:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), found)  # noqa: S102
    assert found["said"] == "paid back 4900 for A-1"
    assert "paid back 4900 for A-2" in str(found["smol_said"])
    assert found["dspy_said"] == "done"
    assert found["llama_said"] == "paid back 4900 for A-4"
    assert len(asked) == 4
    found["gate"].portal.close()
