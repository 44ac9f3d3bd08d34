"""Google ADK: the gate in real agents with a scripted model, on two databases, and its race table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.lives_adk import WHERE, ScriptedModel, text, told
from adapters.frameworks.pages import run_page
from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import FunctionTool
from google.genai import types
from kit.framework_races import early_and_answered, race_table

from askfirst import Gate
from askfirst.adapters.adk import AskfirstPlugin, adk_resumer
from askfirst.adapters.adk_confirmations import CONFIRMATION
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.permissions import Decision, StaticPermissionPolicy
from askfirst.workers import Worker

LIFE = Path(__file__).parent / "lives_adk.py"
pytestmark = pytest.mark.anyio
EXPERIMENTAL = pytest.mark.filterwarnings("ignore:.EXPERIMENTAL. ResumabilityConfig:UserWarning")


class Desk:
    """Runners of one session, and the effects of their tool."""

    def __init__(self, gate: Gate, prices: list[int], **plugin: Any) -> None:
        self.gate, self.prices, self.plugin = gate, prices, plugin
        self.sessions = InMemorySessionService()
        self.charged: list[int] = []
        self.native = False
        self.model: ScriptedModel = ScriptedModel(prices=prices)
        self.front: ScriptedModel | None = None
        """The model of an agent before the one that has the tool."""
        self.is_up = False
        self.is_resumable = False
        self.plugins: list[BasePlugin] = []

    def runner(self) -> Runner:
        """The runner as a process that starts has it."""

        def charge(cents: int, currency: str = "EUR") -> dict[str, Any]:
            """Charge a card."""
            self.charged.append(cents)
            if cents == 13:
                raise ValueError("no such card")
            return {"charged": cents, "in": currency}

        tool = FunctionTool(charge, require_confirmation=self.native)
        agent = LlmAgent(name="till", description="charges", model=self.model, tools=[tool])
        if self.front is not None:
            agent = LlmAgent(name="front", model=self.front, sub_agents=[agent])
        plugins = [AskfirstPlugin(self.gate, **self.plugin), *self.plugins]
        resumable = ResumabilityConfig(is_resumable=True) if self.is_resumable else None
        app = App(name="shop", root_agent=agent, plugins=plugins, resumability_config=resumable)
        return Runner(app=app, session_service=self.sessions, auto_create_session=True)

    async def say(self, message: types.Content) -> list[Any]:
        return [it async for it in self.runner().run_async(**WHERE, new_message=message)]

    async def confirm(self, ids: list[str]) -> list[Any]:
        yes = {"confirmed": True}
        parts = [
            types.Part(function_response=types.FunctionResponse(id=it, name=CONFIRMATION, response=yes))
            for it in ids
        ]
        return await self.say(types.Content(role="user", parts=parts))

    async def said(self) -> str:
        session = await self.sessions.get_session(app_name="shop", **WHERE)
        assert session is not None
        return str(told(session.events)["text"])


def asked(events: list[Any]) -> list[Any]:
    return [call for it in events for call in it.get_function_calls() if call.name == CONFIRMATION]


def keys(events: list[Any]) -> list[str]:
    return [it.args["toolConfirmation"]["payload"]["askfirst"]["key"] for it in asked(events)]


async def test_parallel_calls_answered_in_part_edited_and_gone_on_by_a_worker(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5, 6])
        worker = Worker(store, {"adk": adk_resumer(desk.runner)})
        first, second = keys(await desk.say(text("charge")))
        await gate.answer(
            first, {"decision": "edit", "edited_args": {"cents": 3, "currency": "USD"}}, by="ada"
        )
        assert await worker.run_due() == 1
        assert desk.charged == [3]
        assert (
            await desk.said() == "charge"
        )  # what the user said: the model goes on when all calls are decided
        await gate.answer(second, {"decision": "deny", "reason": "not today"}, by="bob")
        assert await worker.run_due() == 1
        said = await desk.said()
        assert desk.charged == [3]
        assert "a person changed the arguments" in said
        assert "'charged': 3, 'in': 'USD'" in said
        assert "not today" in said


async def test_the_person_sees_the_defaults_and_the_schema(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        await Desk(gate, [5]).say(text("charge"))
        [request] = await gate.pending()
        shown = request.request.payload
        assert shown.gated_call is not None
        assert shown.gated_call.args == {"cents": 5, "currency": "EUR"}
        assert set(shown.args_schema["properties"]) == {"cents", "currency"}  # type: ignore[union-attr]


async def test_an_early_confirmation_waits_still_and_the_later_decision_runs(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5, 6])
        paused = await desk.say(text("charge"))
        ids = [it.id for it in asked(paused)]
        for _ in range(2):
            early = await desk.confirm(ids)
            assert "A person has to decide first: charge, charge." in told(early)["text"]
        await gate.answer(keys(paused)[0], {"decision": "approve"}, by="ada")
        await desk.confirm(ids)  # of two confirmations one stands for a decision
        assert desk.charged == [5]
        await gate.answer(keys(paused)[1], {"decision": "approve"}, by="ada")
        done = await desk.confirm(ids)
        assert desk.charged == [5, 6]
        assert "'charged': 5" in told(done)["text"]
        await desk.confirm(ids)
        assert desk.charged == [5, 6]


async def test_a_tool_that_fails_is_not_run_again(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [13])
        paused = await desk.say(text("charge"))
        await gate.answer(keys(paused)[0], {"decision": "approve"}, by="ada")
        ids = [it.id for it in asked(paused)]
        with pytest.raises(ValueError, match="no such card"):  # ADK raises what a tool raised
            await desk.confirm(ids)
        assert "no such card" in told(await desk.confirm(ids))["text"]
        assert desk.charged == [13]


async def test_a_run_that_died_between_the_tool_and_the_model_goes_on(store_url: str) -> None:
    class Failing(ScriptedModel):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            if not desk.is_up and llm_request.contents[-1].parts[0].function_response:
                desk.is_up = True
                raise ConnectionError("the model is away")
            async for it in super().generate_content_async(llm_request, stream):
                yield it

    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5])
        desk.model = Failing(prices=[5])
        [key] = keys(await desk.say(text("charge")))
        await gate.answer(key, {"decision": "approve"}, by="ada")
        worker, resume = Worker(store, {"adk": adk_resumer(desk.runner)}), adk_resumer(desk.runner)
        await worker.run_due()
        [failed] = await worker.continuations.list()
        assert "the model is away" in (failed.error or "")
        done = await resume(failed)
        assert "'charged': 5" in told(done)["text"]  # type: ignore[arg-type]
        assert desk.charged == [5]
        assert await resume(failed) == []


@EXPERIMENTAL
async def test_a_process_that_died_after_asking_and_before_the_pause(store_url: str) -> None:
    class Dying(InMemorySessionService):
        async def append_event(self, session: Any, event: Any) -> Any:
            if not desk.is_up and any(it.name == CONFIRMATION for it in event.get_function_calls()):
                desk.is_up = True
                raise ConnectionError("no database")
            return await super().append_event(session, event)

    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5])
        desk.sessions = Dying()
        with pytest.raises(ConnectionError):
            await desk.say(text("charge"))
        [request] = await gate.pending()
        await gate.answer(request, {"decision": "approve"}, by="ada")
        worker, resume = Worker(store, {"adk": adk_resumer(desk.runner)}), adk_resumer(desk.runner)
        await worker.run_due()
        [failed] = await worker.continuations.list()
        assert "ResumabilityConfig" in (failed.error or "")  # it is said, and can be tried again
        desk.is_resumable = True
        assert "'charged': 5" in told(await resume(failed))["text"]  # type: ignore[arg-type]
        assert desk.charged == [5]


@EXPERIMENTAL
async def test_an_app_that_is_resumable(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5, 6])
        desk.is_resumable = True
        first, second = keys(await desk.say(text("charge")))
        for key in (first, second):
            await gate.answer(key, {"decision": "approve"}, by="ada")
            await Worker(store, {"adk": adk_resumer(desk.runner)}).run_due()
        assert desk.charged == [5, 6]
        assert "'charged': 6" in await desk.said()


async def test_a_tool_of_a_sub_agent(store_url: str) -> None:
    class Transferring(ScriptedModel):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            call = types.FunctionCall(name="transfer_to_agent", args={"agent_name": "till"})
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))

    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5, 6], tools=["charge"])
        desk.front = Transferring(prices=[])
        first, second = keys(await desk.say(text("charge")))
        for key in (first, second):
            await gate.answer(key, {"decision": "approve"}, by="ada")
            await Worker(store, {"adk": adk_resumer(desk.runner)}).run_due()
        assert desk.charged == [5, 6]
        assert "'charged': 6" in await desk.said()


async def test_tools_that_are_not_named_run_unasked_and_a_policy_denies(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5], tools=["refund"])
        assert told(await desk.say(text("charge")))["paused"] is False
        assert desk.charged == [5]
    policy = StaticPermissionPolicy([], Decision.deny("closed"))
    async with checkpointer_from_url(store_url) as store, Gate(store, policy=policy) as gate:
        desk = Desk(gate, [5])
        assert "closed" in told(await desk.say(text("charge")))["text"]
        assert desk.charged == []


async def test_adks_own_confirmation_beside_a_policy_that_allows(store_url: str) -> None:
    policy = StaticPermissionPolicy([], Decision.allow())
    async with checkpointer_from_url(store_url) as store, Gate(store, policy=policy) as gate:
        desk = Desk(gate, [5])
        desk.native = True
        [own] = asked(await desk.say(text("charge")))
        assert desk.charged == []
        done = await desk.confirm([own.id])
        assert desk.charged == [5]
        assert "'charged': 5" in told(done)["text"]


async def test_another_plugin_may_answer_in_place_of_the_tool(store_url: str) -> None:
    class Cache(BasePlugin):
        async def before_tool_callback(self, **_: Any) -> dict[str, Any]:
            return {"cached": True}

    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5])
        desk.plugins = [Cache(name="cache")]
        [key] = keys(await desk.say(text("charge")))
        await gate.answer(key, {"decision": "approve"}, by="ada")
        await Worker(store, {"adk": adk_resumer(desk.runner)}).run_due()
        assert "'cached': True" in await desk.said()
        assert desk.charged == []


@pytest.mark.timeout(600)
def test_ask_answer_and_go_on_in_three_processes(store_url: str, tmp_path: Path) -> None:
    early_and_answered(LIFE, store_url, tmp_path)


@pytest.mark.timeout(1800)  # some forty processes, each of which imports the framework
def test_the_race_table(tmp_path: Path) -> None:
    race_table("Google ADK", LIFE, tmp_path)


async def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = await run_page("adk", model=ScriptedModel(prices=[4900], tool_name="refund"))
    gate = page["gate"]
    [key] = keys(page["events"])
    await gate.answer(key, {"decision": "approve"}, by="ada")
    worker = Worker(gate.checkpointer, page["resumers"])
    assert await worker.run_due() == 1
    session = await page["runner"].session_service.get_session(
        app_name="shop", user_id="ada", session_id="order-7"
    )
    assert "paid back 4900" in told(session.events)["text"]
    await gate.aclose()
