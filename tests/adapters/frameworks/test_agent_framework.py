"""Microsoft Agent Framework: the gate in real agents with a scripted client, on two databases, and its race table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.lives_agent_framework import ScriptedClient, approve
from adapters.frameworks.pages import run_page
from agent_framework import Agent, AgentSession, FunctionMiddleware, tool
from kit.framework_races import early_and_answered, race_table

from askfirst import Gate
from askfirst.adapters.agent_framework import AskfirstMiddleware, Ended, agent_framework_resumer, run
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.permissions import Decision, StaticPermissionPolicy
from askfirst.workers import Worker

LIFE = Path(__file__).parent / "lives_agent_framework.py"
pytestmark = pytest.mark.anyio


class Desk:
    """Agents with one tool, and its effects."""

    def __init__(self, gate: Gate, prices: list[int], **middleware: Any) -> None:
        self.gate, self.middleware = gate, middleware
        self.charged: list[int] = []
        self.native: Any = "never_require"
        self.client = ScriptedClient(prices)
        self.others: list[FunctionMiddleware] = []

    def agent(self) -> Agent[Any]:
        """The agent as a process that starts has it."""

        def charge(cents: int, currency: str = "EUR") -> str:
            """Charge a card."""
            self.charged.append(cents)
            if cents == 13:
                raise ValueError("no such card")
            return f"charged {cents} {currency}"

        return Agent(
            client=self.client,
            tools=[tool(charge, approval_mode=self.native)],
            middleware=[AskfirstMiddleware(self.gate, **self.middleware), *self.others],
        )

    async def run(self, said: Any = "charge") -> Any:
        return await run(self.agent(), said, gate=self.gate, key="r1")


def keys(response: Any) -> list[str]:
    return [it.additional_properties["askfirst"]["key"] for it in response.user_input_requests]


async def test_parallel_calls_answered_in_part_edited_and_gone_on_by_a_worker(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5, 6])
        worker = Worker(store, {"agent-framework": agent_framework_resumer(desk.agent)})
        first, second = keys(await desk.run())
        await gate.answer(
            first, {"decision": "edit", "edited_args": {"cents": 3, "currency": "USD"}}, by="ada"
        )
        assert await worker.run_due() == 1
        assert desk.charged == [3]
        assert keys(await desk.run()) == [second]
        await gate.answer(second, {"decision": "deny", "reason": "not today"}, by="bob")
        assert await worker.run_due() == 1
        ended = await desk.run()
        assert isinstance(ended, Ended)
        assert desk.charged == [3]
        assert "a person changed the arguments" in ended.text
        assert "charged 3 USD" in ended.text
        assert "not today" in ended.text


async def test_the_person_sees_the_defaults_and_the_schema(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        await Desk(gate, [5]).run()
        [request] = await gate.pending()
        shown = request.request.payload
        assert shown.gated_call is not None
        assert shown.gated_call.args == {"cents": 5, "currency": "EUR"}
        assert set(shown.args_schema["properties"]) == {"cents", "currency"}  # type: ignore[union-attr]


async def test_running_again_before_anybody_decided_pauses_again(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5])
        [key] = keys(await desk.run())
        assert keys(await desk.run()) == [key]
        assert keys(await desk.run("something else")) == [key]
        assert desk.charged == []


async def test_a_session_of_ones_own_needs_no_kept_run(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk, session = Desk(gate, [5]), AgentSession(session_id="mine")
        paused = await desk.agent().run("charge", session=session)
        session = AgentSession.from_dict(session.to_dict())
        paused = await approve(desk.agent(), session, paused.user_input_requests)
        [key] = keys(paused)
        await gate.answer(key, {"decision": "approve"}, by="ada")
        done = await approve(desk.agent(), session, paused.user_input_requests)
        assert done.text == "charged 5 EUR"
        assert desk.charged == [5]


async def test_an_agent_without_a_session_runs_no_gated_tool(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5])
        response = await desk.agent().run("charge")
        assert desk.charged == []
        assert "charged" not in response.text


async def test_a_tool_that_fails_is_not_run_again(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [13])
        [key] = keys(await desk.run())
        await gate.answer(key, {"decision": "approve"}, by="ada")
        await Worker(store, {"agent-framework": agent_framework_resumer(desk.agent)}).run_due()
        assert "Error" in (await desk.run()).text
        assert desk.charged == [13]


async def test_a_run_that_died_between_the_tool_and_the_model_goes_on(store_url: str) -> None:
    class Failing(ScriptedClient):
        is_up = False

        async def _respond(self, messages: Any) -> Any:
            if not Failing.is_up and messages[-1].contents[0].type == "function_result":
                Failing.is_up = True
                raise ConnectionError("the model is away")
            return await super()._respond(messages)

    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5])
        desk.client = Failing([5])
        [key] = keys(await desk.run())
        await gate.answer(key, {"decision": "approve"}, by="ada")
        worker = Worker(store, {"agent-framework": agent_framework_resumer(desk.agent)})
        await worker.run_due()
        [failed] = await worker.continuations.list()
        assert "the model is away" in (failed.error or "")
        assert (await desk.run()).text == "charged 5 EUR"
        assert desk.charged == [5]


async def test_tools_that_are_not_named_run_unasked_and_a_policy_denies(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5], tools=["refund"])
        assert (await desk.run()).text == "charged 5 EUR"
    policy = StaticPermissionPolicy([], Decision.deny("closed"))
    async with checkpointer_from_url(store_url) as store, Gate(store, policy=policy) as gate:
        desk = Desk(gate, [5])
        response = await run(desk.agent(), "charge", gate=gate, key="r2")
        assert "closed" in response.text
        assert desk.charged == []


async def test_the_frameworks_own_approval_is_not_given_by_going_on(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5])
        desk.native = "always_require"
        paused = await desk.run()
        assert len(paused.user_input_requests) == 1
        assert await gate.pending() == []
        [own] = paused.user_input_requests
        paused = await desk.run([_yes(own)])  # now the gate asks
        [key] = keys(paused)
        await gate.answer(key, {"decision": "approve"}, by="ada")
        await Worker(store, {"agent-framework": agent_framework_resumer(desk.agent)}).run_due()
        assert (await desk.run()).text == "charged 5 EUR"
        assert desk.charged == [5]


def _yes(request: Any) -> Any:
    from agent_framework import Message

    return Message(role="user", contents=[request.to_function_approval_response(True)])


async def test_middleware_that_is_nearer_to_the_tool_sees_the_edited_arguments(store_url: str) -> None:
    seen: list[Any] = []

    class Inner(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            seen.append(dict(context.arguments))
            await call_next()

    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [5])
        desk.others = [Inner()]
        [key] = keys(await desk.run())
        await gate.answer(key, {"decision": "edit", "edited_args": {"cents": 3, "currency": "EUR"}}, by="ada")
        await Worker(store, {"agent-framework": agent_framework_resumer(desk.agent)}).run_due()
        assert seen == [{"cents": 3, "currency": "EUR"}]
        assert desk.charged == [3]


@pytest.mark.timeout(600)
def test_ask_answer_and_go_on_in_three_processes(store_url: str, tmp_path: Path) -> None:
    early_and_answered(LIFE, store_url, tmp_path)


@pytest.mark.timeout(1800)  # some forty processes, each of which imports the framework
def test_the_race_table(tmp_path: Path) -> None:
    race_table("Microsoft Agent Framework", LIFE, tmp_path)


async def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = await run_page("agent-framework", client=ScriptedClient([4900], "refund"))
    gate = page["gate"]
    [key] = keys(page["response"])
    await gate.answer(key, {"decision": "approve"}, by="ada")
    assert await Worker(gate.checkpointer, page["resumers"]).run_due() == 1
    assert (await run(page["agent"], "", gate=gate, key="order-7")).text == "paid back 4900"
    await gate.aclose()
