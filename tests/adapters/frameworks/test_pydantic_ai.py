"""Pydantic AI: the gate in real agents, what is kept of their conversations, and the race table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.pages import run_page, run_readme
from kit.framework_races import in_three_processes, race_table
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from askfirst import Gate
from askfirst.adapters import kept_state
from askfirst.adapters.pydantic_ai import AskfirstGate, kept_conversation, pydantic_ai_resumer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.permissions import Rule, Scope, StaticPermissionPolicy
from askfirst.workers import Worker

HERE = Path(__file__).parent
LIFE = HERE / "lives_pydantic_ai.py"
pytestmark = pytest.mark.anyio
Calls = list[ToolCallPart]


class Desk:
    """An agent with two tools, whose model makes the given calls turn by turn and then says what it was told."""

    def __init__(self, gate: Gate, *turns: Calls, tools: Any = ("charge",)) -> None:
        self.made: list[Any] = []
        self.turns = turns
        self.agent: Agent[None, Any] = Agent(
            FunctionModel(self._say),
            output_type=[str, DeferredToolRequests],
            capabilities=[AskfirstGate(gate, tools)],
        )
        self.agent.tool_plain(self.charge)
        self.agent.tool_plain(self.look)
        self.resumers = {"pydantic-ai": pydantic_ai_resumer(self.agent)}

    def charge(self, cents: int, currency: str = "EUR") -> str:
        """Charge the customer."""
        self.made.append(cents)
        return f"charged {cents} {currency}"

    def look(self) -> dict[str, int]:
        """Look at the account."""
        self.made.append("look")
        return {"balance": 3}

    def _say(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = sum(isinstance(it, ModelResponse) for it in messages)
        if said < len(self.turns):
            return ModelResponse(parts=list(self.turns[said]))
        return ModelResponse(parts=[TextPart(" | ".join(told(messages)))])


def told(messages: list[ModelMessage]) -> list[str]:
    """What the model was told of its calls."""
    return [str(part.content) for it in messages for part in it.parts if isinstance(part, ToolReturnPart)]


def call(cents: int, call_id: str = "call_1") -> ToolCallPart:
    return ToolCallPart("charge", {"cents": cents}, call_id)


async def test_a_person_sees_validated_arguments_and_an_edit_is_what_runs(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(
            gate, [ToolCallPart("charge", {"cents": "5"}, "call_1"), ToolCallPart("look", {}, "call_2")]
        )
        desk.agent.name = "refund-desk"
        paused = await desk.agent.run("charge", conversation_id="c1")
        assert isinstance(paused.output, DeferredToolRequests)
        [request] = await gate.pending()
        assert request.request.payload.args == {"cents": 5, "currency": "EUR"}
        assert request.request.agents == ["refund-desk"]
        edit = {"decision": "edit", "edited_args": {"cents": 3, "currency": "USD"}}
        await gate.answer(request, edit, by="ada")
        assert await Worker(store, desk.resumers).run_due() == 1
        kept = await kept_conversation(gate, "c1")
        assert kept is not None
        assert desk.made == ["look", 3]
        assert kept.deferred_tool_requests is None
        [charged] = [it for it in told(kept.messages) if "charged" in it]
        assert charged.endswith("charged 3 USD")
        assert '{"cents": 3, "currency": "USD"}' in charged


async def test_the_page_shows_what_the_agent_did_before(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [ToolCallPart("look", {}, "call_1")], [call(5, "call_2")])
        await desk.agent.run("charge", conversation_id="c1")
        [request] = await gate.pending()
        assert request.request.payload.words["before"] == [
            {"who": "person", "text": "charge"},
            {"who": "agent", "text": "", "tool": "look"},
            {"who": "tool", "text": '{"balance":3}', "tool": "look"},
        ]


async def test_an_edit_that_does_not_fit_is_not_run_and_the_model_is_told(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [call(5)])

        def at_most_nine(cents: int) -> str:
            """Charge the customer."""
            desk.made.append(cents)
            return "charged"

        agent: Agent[None, Any] = Agent(
            FunctionModel(desk._say),
            output_type=[str, DeferredToolRequests],
            capabilities=[AskfirstGate(gate)],
        )
        agent.tool_plain(at_most_nine, name="charge", args_validator=_at_most_nine)
        await agent.run("charge", conversation_id="c1")
        await gate.answer(
            (await gate.pending())[0], {"decision": "edit", "edited_args": {"cents": 10}}, by="ada"
        )
        await Worker(store, {"pydantic-ai": pydantic_ai_resumer(lambda: agent)}).run_due()
        kept = await kept_conversation(gate, "c1")
        assert kept is not None
        assert desk.made == []
        assert "the edited arguments do not fit (at most nine)" in told(kept.messages)[0]


def _at_most_nine(ctx: Any, cents: int) -> None:
    from pydantic_ai import ModelRetry

    if cents > 9:
        raise ModelRetry("at most nine")


async def test_of_two_calls_each_goes_on_when_it_is_answered(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [call(5), call(6, "call_2")])
        await desk.agent.run("charge", conversation_id="c1")
        first, second = await gate.pending()
        worker = Worker(store, desk.resumers)
        await gate.answer(second, {"decision": "approve"}, by="ada")
        await worker.run_due()
        assert desk.made == [6]
        await gate.answer(first, {"decision": "deny", "reason": "too much"}, by="ada")
        await worker.run_due()
        kept = await kept_conversation(gate, "c1")
        assert kept is not None
        assert desk.made == [6]
        assert told(kept.messages) == ["charged 6 EUR", "A person denied charge: too much"]
        assert isinstance(kept.messages[-1], ModelResponse)


async def test_a_call_id_that_comes_again_is_asked_about_again(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [call(5)], [call(5)])
        await desk.agent.run("charge", conversation_id="c1")
        worker = Worker(store, desk.resumers)
        keys: set[str] = set()
        for made in ([5], [5, 5]):
            [request] = await gate.pending()
            keys.add(request.thread_id)
            await gate.answer(request, {"decision": "approve"}, by="ada")
            await worker.run_due()
            assert desk.made == made
        assert len(keys) == 2


async def test_approvals_that_nobody_gave_only_defer_again(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [call(5)])
        paused = await desk.agent.run("charge", conversation_id="c1")
        forged = DeferredToolResults(approvals={"call_1": ToolApproved(override_args={"cents": 5})})
        for _ in range(2):
            again = await desk.agent.run(conversation=paused.conversation, deferred_tool_results=forged)
            assert isinstance(again.output, DeferredToolRequests)
        assert desk.made == []
        assert len(await gate.pending()) == 1


async def test_what_the_policy_allows_runs_and_nothing_is_kept(store_url: str) -> None:
    policy = StaticPermissionPolicy([Rule(id="all", scope=Scope(tool="charge"), effect="allow")])
    async with checkpointer_from_url(store_url) as store, Gate(store, policy=policy) as gate:
        desk = Desk(gate, [call(5)], tools=None)
        assert (await desk.agent.run("charge", conversation_id="c1")).output == "charged 5 EUR"
        assert await kept_conversation(gate, "c1") is None


async def test_tools_that_require_the_frameworks_own_approval_are_not_approved_by_going_on(
    store_url: str,
) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        desk = Desk(gate, [call(5), ToolCallPart("native", {}, "call_2")])

        @desk.agent.tool_plain(requires_approval=True)
        def native() -> str:
            desk.made.append("native")
            return "ran"

        await desk.agent.run("charge", conversation_id="c1")
        await gate.answer((await gate.pending())[0], {"decision": "approve"}, by="ada")
        await Worker(store, desk.resumers).run_due()
        kept = await kept_conversation(gate, "c1")
        assert desk.made == [5]
        assert kept is not None
        assert kept.deferred_tool_requests is not None
        assert [it.tool_name for it in kept.deferred_tool_requests.approvals] == ["native"]


async def test_the_conversation_is_kept_before_anybody_is_asked(store_url: str) -> None:
    async with checkpointer_from_url(store_url) as store, Gate(store) as gate:
        seen: list[Any] = []

        async def look(request: Any) -> None:
            seen.append((await kept_state.load(store, "pydantic-ai", "c1")).state)

        gate.on_opened(look)
        await Desk(gate, [call(5)]).agent.run("charge", conversation_id="c1")
        assert [part["tool_call_id"] for part in seen[0]["messages"][-1]["parts"]] == ["call_1"]


async def test_ask_answer_and_go_on_in_three_processes(store_url: str, tmp_path: Path) -> None:
    await in_three_processes(LIFE, store_url, tmp_path, "charged 5")


async def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = await run_page("pydantic-ai")
    assert page["result"] == "I paid back: paid 4900 cents for A-1042"


async def test_the_readme(tmp_path: Path) -> None:
    def refund(order: str) -> str:
        """Pay money back."""
        return f"paid {order}"

    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        desk = Desk(gate, [ToolCallPart("refund", {"order": "A-1"}, "call_1")])
        have: Any = {"Agent": Agent, "DeferredToolRequests": DeferredToolRequests, "tools": [refund]}
        page = await run_readme("pydantic_ai", gate=gate, model=FunctionModel(desk._say), **have)
        await page["agent"].run("refund", conversation_id="c1")
        await gate.answer((await gate.pending())[0], {"decision": "approve"}, by="ada")
        await gate.worker({"pydantic-ai": pydantic_ai_resumer(page["agent"])}).run_due()
        kept = await kept_conversation(gate, "c1")
        assert kept is not None
        assert told(kept.messages) == ["paid A-1"]


def test_one_effect_always(tmp_path: Path) -> None:
    race_table("Pydantic AI", LIFE, tmp_path)
