"""Strands: the gate in real agents with a scripted model, on two databases, and its race table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.lives_strands import ScriptedModel
from adapters.frameworks.pages import run_page
from kit.framework_races import in_three_processes, race_table
from strands import Agent, tool
from strands.session import FileSessionManager
from strands.types.tools import ToolContext

from askfirst import Gate
from askfirst.adapters.strands import AskfirstPlugin, strands_resumer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.workers import Worker

HERE = Path(__file__).parent
LIFE = HERE / "lives_strands.py"
pytestmark = pytest.mark.anyio


class Desk:
    """Agents of one session, and the effects of their tool."""

    def __init__(self, gate: Gate, folder: Path, prices: list[int], **plugin: Any) -> None:
        self.gate, self.folder, self.prices, self.plugin = gate, folder, prices, plugin
        self.charged: list[int] = []

    def agent(self, thread: str = "s1") -> Agent:
        """The agent of a session, as a process that starts has it."""

        @tool
        def charge(cents: int) -> str:
            """Charge a card."""
            self.charged.append(cents)
            if cents == 13:
                raise ValueError("no such card")
            return f"charged {cents}"

        return Agent(
            model=ScriptedModel(self.prices),
            tools=[charge],
            callback_handler=None,
            plugins=[AskfirstPlugin(self.gate, **self.plugin)],
            session_manager=FileSessionManager(thread, storage_dir=str(self.folder)),
        )


def keys(result: Any) -> list[str]:
    return [it.reason["key"] for it in result.interrupts]


async def test_parallel_calls_answered_in_part_edited_and_gone_on_by_a_worker(
    store_url: str, tmp_path: Path
) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, tmp_path, [5, 6])
        worker = Worker(store, {"strands": strands_resumer(desk.agent)})
        paused = await desk.agent().invoke_async("charge")
        assert paused.stop_reason == "interrupt"
        first, second = keys(paused)
        await gate.answer(first, {"decision": "edit", "edited_args": {"cents": 3}}, by="ada")
        assert await worker.run_due() == 1
        assert desk.charged == [3]
        await gate.answer(second, {"decision": "deny", "reason": "not today"}, by="bob")
        assert await worker.run_due() == 1
        said = str(desk.agent().messages[-1]["content"][0])
        assert desk.charged == [3]
        assert "a person changed the arguments" in said
        assert "charged 3" in said
        assert "not today" in said


async def test_an_early_response_pauses_again(store_url: str, tmp_path: Path) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, tmp_path, [5])
        paused = await desk.agent().invoke_async("charge")
        for _ in range(2):
            yes = [{"interruptResponse": {"interruptId": it.id, "response": "y"}} for it in paused.interrupts]
            paused = await desk.agent().invoke_async(yes)
            assert paused.stop_reason == "interrupt"
        assert desk.charged == []


async def test_an_id_that_comes_again_in_a_later_turn_is_another_call(store_url: str, tmp_path: Path) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, tmp_path, [5])
        worker = Worker(store, {"strands": strands_resumer(desk.agent)})
        for number in (1, 2):
            paused = await desk.agent().invoke_async("charge")
            [key] = keys(paused)
            await gate.answer(key, {"decision": "approve"}, by="ada")
            await worker.run_due()
            assert desk.charged == [5] * number


async def test_a_tool_that_fails_is_not_run_again(store_url: str, tmp_path: Path) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, tmp_path, [13])
        [key] = keys(await desk.agent().invoke_async("charge"))
        await gate.answer(key, {"decision": "approve"}, by="ada")
        await Worker(store, {"strands": strands_resumer(desk.agent)}).run_due()
        assert "no such card" in str(desk.agent().messages[-1])
        assert desk.charged == [13]


async def test_tools_that_are_not_named_run_unasked(store_url: str, tmp_path: Path) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, tmp_path, [5], tools=["refund"])
        assert (await desk.agent().invoke_async("charge")).stop_reason == "end_turn"
        assert desk.charged == [5]


async def test_a_body_that_interrupts_by_itself_runs_again_when_it_is_resumed(
    store_url: str, tmp_path: Path
) -> None:
    started: list[int] = []

    @tool(context=True)
    def charge(cents: int, tool_context: ToolContext) -> str:
        """Charge a card."""
        started.append(cents)
        return f"charged {tool_context.interrupt('which card', reason='which card?')}"

    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:

        def agent(thread: str = "s1") -> Agent:
            return Agent(
                model=ScriptedModel([5]),
                tools=[charge],
                callback_handler=None,
                plugins=[AskfirstPlugin(gate)],
                session_manager=FileSessionManager(thread, storage_dir=str(tmp_path)),
            )

        [key] = keys(await agent().invoke_async("charge"))
        await gate.answer(key, {"decision": "approve"}, by="ada")
        await Worker(store, {"strands": strands_resumer(agent)}).run_due()
        assert started == [5]
        waiting = agent()
        [own] = [it for it in waiting._interrupt_state.interrupts.values() if it.name == "which card"]
        response = {"interruptResponse": {"interruptId": own.id, "response": "the blue one"}}
        done = await waiting.invoke_async([response])  # type: ignore[list-item]
        assert "charged the blue one" in str(done)
        assert started == [5, 5]


async def test_ask_answer_and_go_on_in_three_processes(store_url: str, tmp_path: Path) -> None:
    await in_three_processes(LIFE, store_url, tmp_path)


def test_the_race_table(tmp_path: Path) -> None:
    race_table("Strands", LIFE, tmp_path)


async def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = await run_page("strands", model=ScriptedModel([4900], "refund"))
    assert page["result"].stop_reason == "interrupt"
    gate = page["gate"]
    await gate.answer(keys(page["result"])[0], {"decision": "approve"}, by="ada")
    assert await Worker(gate._store, page["resumers"]).run_due() == 1
    assert "paid back 4900" in str(page["make_agent"]("order-7").messages[-1])
    await gate.aclose()
