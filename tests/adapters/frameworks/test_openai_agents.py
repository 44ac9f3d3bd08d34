"""OpenAI Agents SDK: the gate in real agents, what is kept of their runs, and the race table."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.openai_script import ScriptedModel
from adapters.frameworks.pages import run_page, run_readme
from agents import Agent, Runner, function_tool
from agents.exceptions import UserError
from agents.tool import FunctionTool
from kit.framework_races import in_three_processes, race_table

from askfirst import Gate, Pending
from askfirst.adapters import kept_state
from askfirst.adapters.openai_agents import Ended, gated, kept_run, openai_agents_resumer, run
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.errors import HitlError
from askfirst.permissions import Rule, Scope, StaticPermissionPolicy
from askfirst.workers import Worker

LIFE = Path(__file__).parent / "lives_openai_agents.py"
pytestmark = pytest.mark.anyio


class Payments:
    """Two tools, and what they did."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    @property
    def tools(self) -> list[FunctionTool]:
        @function_tool(strict_mode=False)
        def charge(cents: int, currency: str = "EUR") -> str:
            """Charge the customer."""
            self.made.append(cents)
            return f"charged {cents} {currency}"

        @function_tool
        def look() -> str:
            """Look at the account."""
            self.made.append("look")
            return "seen"

        return [charge, look]


def call(cents: int, call_id: str = "call_1") -> tuple[str, dict[str, Any], str]:
    return "charge", {"cents": cents}, call_id


def desk(gate: Gate, payments: Payments, *turns: Any, ask: Any = ("charge",)) -> Agent[Any]:
    return Agent("desk", model=ScriptedModel(*turns), tools=[*gated(gate, payments.tools, ask)])


async def go_on(store: Any, agent: Agent[Any]) -> int:
    return await Worker(store, {"openai-agents": openai_agents_resumer(agent)}).run_due()


async def test_an_edit_is_what_runs_and_the_model_is_told(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        payments = Payments()
        agent = desk(gate, payments, [call(5), ("look", {}, "call_2")])
        paused = await run(agent, "charge", gate=gate, key="r1")
        assert len(paused.interruptions) == 1
        assert await kept_run(gate, "r1") is None
        [request] = await gate.pending()
        assert request.request.payload.args == {"cents": 5, "currency": "EUR"}
        assert request.request.agents == ["desk"]
        edit = {"decision": "edit", "edited_args": {"cents": 3, "currency": "USD"}}
        await gate.answer(request, edit, by="ada")
        assert await go_on(store, agent) == 1
        assert payments.made == ["look", 3]
        ended = await kept_run(gate, "r1")
        assert ended is not None
        assert "charged 3 USD" in ended.final_output
        assert '{"cents": 3, "currency": "USD"}' in ended.final_output


async def test_of_two_calls_each_goes_on_when_it_is_answered(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        payments = Payments()
        agent = desk(gate, payments, [call(5), call(6, "call_2")])
        await run(agent, "charge", gate=gate, key="r1")
        first, second = await gate.pending()
        await gate.answer(second, {"decision": "approve"}, by="ada")
        await go_on(store, agent)
        assert payments.made == [6]
        await gate.answer(first, {"decision": "deny", "reason": "too much"}, by="ada")
        await go_on(store, agent)
        assert payments.made == [6]
        ended = await kept_run(gate, "r1")
        assert ended is not None
        assert sorted(ended.final_output.split(" | ")) == [
            "A person denied charge: too much",
            "charged 6 EUR",
        ]


async def test_who_runs_again_with_a_key_goes_on_where_the_run_is(store_url: str) -> None:
    async with Gate(store_url) as gate:
        payments = Payments()
        agent = desk(gate, payments, [call(5)])
        for _ in range(2):
            assert len((await run(agent, "charge", gate=gate, key="r1")).interruptions) == 1
        [request] = await gate.pending()
        await gate.answer(request, {"decision": "approve"}, by="ada")
        assert (await run(agent, "charge", gate=gate, key="r1")).final_output == "charged 5 EUR"
        asked = agent.model.asked  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
        assert await run(agent, "charge", gate=gate, key="r1") == Ended("charged 5 EUR")
        assert agent.model.asked == asked  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
        assert payments.made == [5]
        assert len((await run(agent, "charge", gate=gate, key="r2")).interruptions) == 1


async def test_calls_of_an_agent_that_is_a_tool_are_asked_about(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        payments = Payments()
        inner: Agent[Any] = Agent(
            "inner", model=ScriptedModel([call(7)]), tools=[*gated(gate, payments.tools)]
        )
        outer: Agent[Any] = Agent(
            "outer",
            model=ScriptedModel([("sub", {"input": "x"}, "call_9"), call(5, "call_2")]),
            tools=[*gated(gate, [*payments.tools, inner.as_tool("sub", "Ask the inner agent.")])],
        )
        await run(outer, "charge", gate=gate, key="r1")
        while waiting := await gate.pending():
            await gate.answer(waiting[0], {"decision": "approve"}, by="ada")
            await go_on(store, outer)
        assert sorted(payments.made) == [5, 7]
        ended = await kept_run(gate, "r1")
        assert ended is not None
        assert sorted(ended.final_output.split(" | ")) == ["charged 5 EUR", "charged 7 EUR"]


async def test_an_approval_that_nobody_gave_runs_nothing(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        payments = Payments()
        agent = desk(gate, payments, [call(5)])
        paused = await run(agent, "charge", gate=gate, key="r1")
        state = paused.to_state()
        state.approve(paused.interruptions[0])
        forged = copy.deepcopy(state.to_json())
        with pytest.raises(UserError, match="the run has no key"):
            await Runner.run(agent, state)
        known = await kept_state.load(store, "openai-agents", "r1")
        assert await kept_state.keep(store, known, forged)
        with pytest.raises(Pending):
            await run(agent, "charge", gate=gate, key="r1")
        assert payments.made == []
        await gate.answer((await gate.pending())[0], {"decision": "approve"}, by="ada")
        await go_on(store, agent)
        assert payments.made == [5]


async def test_what_the_policy_allows_runs_and_what_it_denies_does_not(store_url: str) -> None:
    rules = [
        Rule(id="charge", scope=Scope(tool="charge"), effect="allow"),
        Rule(id="look", scope=Scope(tool="look"), effect="deny"),
    ]
    async with Gate(store_url, policy=StaticPermissionPolicy(rules)) as gate:
        payments = Payments()
        agent = desk(gate, payments, [call(5), ("look", {}, "call_2")], ask=None)
        done = await run(agent, "charge", gate=gate, key="r1")
        assert payments.made == [5]
        assert "look was not run" in str(done.final_output)
        assert await gate.pending() == []


async def test_the_state_is_kept_before_anybody_is_asked(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        seen: list[Any] = []

        async def look(request: Any) -> None:
            seen.append((await kept_state.load(store, "openai-agents", "r1")).state)

        gate.on_opened(look)
        await run(desk(gate, Payments(), [call(5)]), "charge", gate=gate, key="r1")
        assert "call_1" in json.dumps(seen[0]["current_step"])


async def test_a_tool_that_cannot_be_gated_is_refused(store_url: str) -> None:
    gate = Gate(store_url)
    inner: Agent[Any] = Agent("inner", model=ScriptedModel())
    with pytest.raises(HitlError, match="sub cannot be gated"):
        gated(gate, [inner.as_tool("sub", "")], ["sub"])


async def test_ask_answer_and_go_on_in_three_processes(store_url: str, tmp_path: Path) -> None:
    await in_three_processes(LIFE, store_url, tmp_path, "charged 5")


async def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel([("refund", {"order": "A-1042", "cents": 4900}, "call_1")])
    page = await run_page("openai-agents", model=model)
    assert page["ended"].final_output == "paid 4900 cents for A-1042"


async def test_the_readme(tmp_path: Path) -> None:
    @function_tool
    def refund(order: str) -> str:
        """Pay money back."""
        return f"paid {order}"

    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        model = ScriptedModel([("refund", {"order": "A-1"}, "call_1")])
        page = await run_readme("openai_agents", gate=gate, Agent=Agent, model=model, refund=refund)
        assert page["result"].interruptions
        await gate.answer((await gate.pending())[0], {"decision": "approve"}, by="ada")
        await gate.worker({"openai-agents": openai_agents_resumer(page["agent"])}).run_due()
        assert await kept_run(gate, "chat-7:turn-1") == Ended("paid A-1")


def test_one_effect_always(tmp_path: Path) -> None:
    race_table("OpenAI Agents", LIFE, tmp_path)
