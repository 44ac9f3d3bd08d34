"""Haystack: the gate in real agents with a scripted generator, on two databases, and its race table."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.lives_haystack import ScriptedGenerator
from adapters.frameworks.pages import run_page
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from kit.framework_races import early_and_answered, race_table

from askfirst import Gate
from askfirst.adapters.haystack import hooks
from askfirst.errors import HitlError, Pending
from askfirst.permissions import Decision, StaticPermissionPolicy
from askfirst.workers import Worker

LIFE = Path(__file__).parent / "lives_haystack.py"
pytestmark = pytest.mark.anyio


class Desk:
    """Agents with one tool, and its effects."""

    def __init__(self, gate: Gate, prices: list[int], **options: Any) -> None:
        self.gate, self.prices, self.options = gate, prices, options
        self.charged: list[int] = []

    def agent(self) -> Agent:
        """The agent as a process that starts has it."""

        @tool
        def charge(cents: int, currency: str = "EUR") -> str:
            """Charge a card."""
            self.charged.append(cents)
            if cents == 13:
                raise ValueError("no such card")
            return f"charged {cents} {currency}"

        made: Any = hooks(self.gate, **self.options)
        return Agent(chat_generator=ScriptedGenerator(self.prices), tools=[charge], hooks=made)

    async def run(self, key: str | None = "r1") -> str:
        context = None if key is None else {"key": key}
        messages = [ChatMessage.from_user("charge")]
        done = await self.agent().run_async(messages=messages, hook_context=context)
        return str(done["last_message"].text)

    async def answer(self, answer: dict[str, Any]) -> None:
        [request, *_] = await self.gate.pending()
        await self.gate.answer(request, answer, by="ada")


async def test_it_waits_in_place_and_an_edit_is_what_runs(store_url: str) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, [5, 6])
        opened: asyncio.Queue[Any] = asyncio.Queue()
        gate.on_opened(opened.put)
        running = asyncio.create_task(desk.run())
        edit = {"decision": "edit", "edited_args": {"cents": 3, "currency": "USD"}}
        await gate.answer(await opened.get(), edit, by="ada")
        second = await opened.get()
        assert desk.charged == []  # tools run when all calls are decided
        await gate.answer(second, {"decision": "deny", "reason": "not today"}, by="bob")
        said = await running
        assert desk.charged == [3]
        assert "charged 3 USD" in said
        assert "a person changed the arguments" in said
        assert "not today" in said


async def test_run_without_an_event_loop_waits_in_its_thread(store_url: str) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, [5])
        opened: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        gate.on_opened(lambda request: loop.call_soon_threadsafe(opened.put_nowait, request))
        message = ChatMessage.from_user("charge")
        run = asyncio.to_thread(desk.agent().run, messages=[message], hook_context={"key": "r1"})
        running = asyncio.create_task(run)
        await gate.answer(await opened.get(), {"decision": "approve"}, by="ada")
        assert "charged 5 EUR" in (await running)["last_message"].text
        assert desk.charged == [5]
        again = await asyncio.to_thread(desk.agent().run, messages=[message], hook_context={"key": "r1"})
        assert "ran before. Its result: charged 5 EUR" in again["last_message"].text
        assert desk.charged == [5]


async def test_a_run_that_does_not_wait_is_run_again_with_its_key(store_url: str) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, [5, 6], wait=0)
        for _ in range(2):
            with pytest.raises(Pending):
                await desk.run()
        assert len(await gate.pending()) == 1
        await desk.answer({"decision": "approve"})
        with pytest.raises(Pending):  # the first is approved and does not run: the second has to be decided
            await desk.run()
        assert desk.charged == []
        await desk.answer({"decision": "approve"})
        assert "charged 5 EUR / charged 6 EUR" in await desk.run()
        assert desk.charged == [5, 6]
        await desk.run()
        assert desk.charged == [5, 6]


async def test_the_same_call_twice_is_two_calls_and_another_key_another_run(store_url: str) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, [5, 5], wait=0)
        for _ in range(2):
            with pytest.raises(Pending):
                await desk.run()
            await desk.answer({"decision": "approve"})
        await desk.run()
        assert desk.charged == [5, 5]
        with pytest.raises(Pending):
            await desk.run("r2")
        with pytest.raises(Pending):
            await desk.run(None)
        assert len(await gate.pending()) == 2


async def test_a_tool_that_fails_is_not_run_again(store_url: str) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, [13], wait=0)
        with pytest.raises(Pending):
            await desk.run()
        await desk.answer({"decision": "approve"})
        assert "no such card" in await desk.run()
        assert "no such card" in await desk.run()
        assert desk.charged == [13]


async def test_tools_that_are_not_named_run_unasked_and_a_policy_denies(store_url: str) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, [5], tools=["refund"])
        assert "charged 5" in await desk.run()
    async with Gate(store_url, policy=StaticPermissionPolicy([], Decision.deny("closed"))) as gate:
        desk = Desk(gate, [5])
        assert "closed" in await desk.run("r2")
        assert desk.charged == []


async def test_a_resumer_of_ones_own_runs_the_agent_again(store_url: str) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, [5], wait=0, resumer="shop")
        with pytest.raises(Pending):
            await desk.run()
        await desk.answer({"decision": "approve"})

        async def again(continuation: Any) -> None:
            await desk.run(continuation.thread_id)

        assert await Worker(gate.checkpointer, {"shop": again}).run_due() == 1  # type: ignore[arg-type]
        assert desk.charged == [5]


async def test_an_agent_with_the_gate_is_not_serialized(store_url: str) -> None:
    async with Gate(store_url) as gate:
        [hook] = hooks(gate)["before_tool"]
        with pytest.raises(HitlError, match="cannot be serialized"):
            hook.to_dict()


@pytest.mark.timeout(600)
def test_ask_answer_and_go_on_in_three_processes(store_url: str, tmp_path: Path) -> None:
    early_and_answered(LIFE, store_url, tmp_path)


@pytest.mark.timeout(1800)
def test_the_race_table(tmp_path: Path) -> None:
    race_table("Haystack", LIFE, tmp_path)


async def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    class Approving(Gate):
        """Answered by a person as soon as it asks."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.on_opened(lambda request: self.answer(request, {"decision": "approve"}, by="ada"))

    monkeypatch.setattr("askfirst.Gate", Approving)
    page = await run_page("haystack", generator=ScriptedGenerator([4900], "refund"))
    assert "paid back 4900" in page["result"]["last_message"].text
    await page["gate"].aclose()
