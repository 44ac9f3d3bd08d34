"""CrewAI Flows: the gate in real flows, on two databases, and its race table."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.pages import run_page
from kit.framework_races import early_and_answered, race_table

from askfirst import Gate
from askfirst.errors import Denied, HitlError
from askfirst.permissions import Decision, StaticPermissionPolicy
from askfirst.workers import Worker

HERE = Path(__file__).parent
LIFE = HERE / "lives_crewai.py"
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # CrewAI's imports warn of much


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CrewAI keeps its databases in a folder of the test, and tells nobody of it."""
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path))
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")


class Desk:
    """A flow with the gate, and the effects of its listener."""

    def __init__(self, gate: Gate, folder: Path, emit: list[str] | None = None, **options: Any) -> None:
        from crewai.flow.flow import Flow, listen, start
        from crewai.flow.human_feedback import human_feedback
        from crewai.flow.persistence import SQLiteFlowPersistence

        from askfirst.adapters.crewai import AskfirstFeedback, crewai_resumer

        feedback = AskfirstFeedback(gate, **options)
        charged: list[Any] = []
        denied: list[Any] = []

        class Shop(Flow[dict[str, Any]]):
            _skip_auto_memory: bool = True  # as in lives_crewai.py

            @start()
            @human_feedback(message="Charge {x}?", emit=emit, llm="none" if emit else None, provider=feedback)
            def propose(self) -> dict[str, Any]:
                return {"cents": 5}

            @listen("yes" if emit else propose)
            @feedback.effect
            def charge(self, result: Any) -> str:
                charged.append((result.output["cents"], result.metadata["askfirst"].get("by")))
                if result.output["cents"] == 13:
                    raise ValueError("no such card")
                return f"charged {result.output['cents']}"

            @listen("no")
            def apologise(self, result: Any) -> str:
                denied.append(result.metadata["askfirst"]["reason"])
                return "sorry"

        self.gate, self.flow, self.charged, self.denied = gate, Shop, charged, denied
        self.feedback = feedback
        self.persistence = SQLiteFlowPersistence(str(folder / "flows.db"))
        self.resumer = crewai_resumer(Shop, feedback, self.persistence)

    async def ask(self) -> Any:
        return await self.flow(persistence=self.persistence).kickoff_async()

    async def go_on(self) -> int:
        await self.gate.ready()
        return await Worker(self.gate.checkpointer, {"crewai": self.resumer}).run_due()


def feedback_of(pending: Any) -> Any:
    """What CrewAI gives a listener when a flow is resumed; imported here, because the import warns of much."""
    from crewai.flow.human_feedback import HumanFeedbackResult

    metadata = pending.context.metadata
    return HumanFeedbackResult(output={"cents": 5}, feedback="", method_name="propose", metadata=metadata)


def key(pending: Any) -> str:
    return str(pending.callback_info["key"])


async def test_an_approval_runs_the_effect_once(store_url: str, tmp_path: Path) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, tmp_path)
        pending = await desk.ask()
        [request] = await gate.pending()
        assert request.request.payload.gated_call is not None
        assert request.request.payload.gated_call.args == {"output": {"cents": 5}}
        await gate.answer(key(pending), {"decision": "approve"}, by="ada")
        assert await desk.go_on() == 1
        assert await desk.go_on() == 0
        assert desk.charged == [(5, "ada")]
        assert desk.persistence.load_pending_feedback(pending.context.flow_id) is None


async def test_an_edit_is_what_the_listener_is_given(store_url: str, tmp_path: Path) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, tmp_path)
        pending = await desk.ask()
        edit = {"decision": "edit", "edited_args": {"output": {"cents": 3}}}
        await gate.answer(key(pending), edit, by="ada")
        await desk.go_on()
        assert desk.charged == [(3, "ada")]


async def test_outcomes_are_chosen_by_the_person_and_by_no_model(store_url: str, tmp_path: Path) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, tmp_path, ["yes", "later", "no"])
        pending = await desk.ask()
        await gate.answer(key(pending), {"decision": "deny", "reason": "not today"}, by="bob")
        await desk.go_on()
        assert (desk.charged, desk.denied) == ([], ["not today"])
        pending = await desk.ask()
        await gate.answer(key(pending), {"decision": "approve"}, by="ada")
        await desk.go_on()
        assert desk.charged == [(5, "ada")]


async def test_a_resume_with_a_yes_that_nobody_gave_pauses_again(store_url: str, tmp_path: Path) -> None:
    from crewai.flow.async_feedback import HumanFeedbackPending

    async with Gate(store_url) as gate:
        desk = Desk(gate, tmp_path)
        pending = await desk.ask()
        flow_id = pending.context.flow_id
        for _ in range(2):
            early = await desk.flow.from_pending(flow_id, desk.persistence).resume_async("approved")
            assert isinstance(early, HumanFeedbackPending)
            assert key(early) == key(pending)
        assert desk.charged == []
        await gate.answer(key(pending), {"decision": "deny", "reason": "no"}, by="ada")
        with pytest.raises(Denied):
            await desk.flow.from_pending(flow_id, desk.persistence).resume_async("approved")
        assert desk.charged == []


async def test_a_flow_that_died_in_a_listener_goes_on_and_the_effect_is_not_doubled(
    store_url: str, tmp_path: Path
) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, tmp_path)
        pending = await desk.ask()
        edit = {"decision": "edit", "edited_args": {"output": {"cents": 13}}}
        await gate.answer(key(pending), edit, by="ada")
        await desk.go_on()  # the listener raised: CrewAI alone has forgotten the flow by now
        assert desk.persistence.load_pending_feedback(pending.context.flow_id) is not None
        ended = await desk.resumer(await _continuation(gate))
        assert isinstance(ended, Denied)
        assert "no such card" in str(ended)
        assert desk.charged == [(13, "ada")]
        assert desk.persistence.load_pending_feedback(pending.context.flow_id) is None


async def _continuation(gate: Gate) -> Any:
    worker = gate.worker({"crewai": lambda _: None})  # type: ignore[dict-item,arg-type,return-value]
    [one] = await worker.continuations.list()
    return one


async def test_an_effect_may_be_async(store_url: str, tmp_path: Path) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, tmp_path)
        pending = await desk.ask()
        await gate.answer(key(pending), {"decision": "approve"}, by="ada")
        given = feedback_of(pending)

        async def charge(flow: Any, result: Any) -> int:
            await asyncio.sleep(0)
            return int(result.output["cents"])

        assert await asyncio.to_thread(desk.feedback.effect(charge), None, given) == 5


async def test_one_approval_is_for_one_effect(store_url: str, tmp_path: Path) -> None:
    async with Gate(store_url) as gate:
        desk = Desk(gate, tmp_path)
        pending = await desk.ask()
        await gate.answer(key(pending), {"decision": "approve"}, by="ada")
        await desk.go_on()
        given = feedback_of(pending)

        def other(flow: Any, result: Any) -> None:
            raise AssertionError("it ran")

        async def charge(flow: Any, result: Any) -> str:
            raise AssertionError("it ran again")

        stored = await asyncio.to_thread(desk.feedback.effect(charge), None, given)
        assert stored == "charged 5"
        with pytest.raises(HitlError, match="permits one effect"):
            await asyncio.to_thread(desk.feedback.effect(other), None, given)
        with pytest.raises(HitlError, match="does not come from the gate"):
            await asyncio.to_thread(desk.feedback.effect(other), None, "approved")


async def test_a_policy_that_denies_ends_the_flow_and_emit_needs_two_outcomes(
    store_url: str, tmp_path: Path
) -> None:
    async with Gate(store_url, policy=StaticPermissionPolicy([], Decision.deny("closed"))) as gate:
        with pytest.raises(Denied, match="closed"):
            await Desk(gate, tmp_path).ask()
    async with Gate(store_url) as gate:
        with pytest.raises(HitlError, match="two outcomes"):
            await Desk(gate, tmp_path, ["yes"]).ask()
        assert await gate.pending() == []


@pytest.mark.timeout(600)
def test_ask_answer_and_go_on_in_three_processes(store_url: str, tmp_path: Path) -> None:
    early_and_answered(LIFE, store_url, tmp_path)


@pytest.mark.timeout(2400)  # some forty processes, each of which imports the framework
def test_the_race_table(tmp_path: Path) -> None:
    race_table("CrewAI Flows", LIFE, tmp_path)


async def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = await run_page("crewai")
    gate = page["gate"]
    await gate.answer(key(page["pending"]), {"decision": "approve"}, by="ada")
    results: list[Any] = []

    async def resume(continuation: Any) -> None:
        results.append(await page["resumers"]["crewai"](continuation))

    await gate.ready()
    assert await Worker(gate.checkpointer, {"crewai": resume}).run_due() == 1
    assert results == ["paid back 4900"]
    await gate.aclose()
