"""What an agent's tool says of its calls reaches the person, whichever way they are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from askfirst import Agent, ToolContext, tool
from askfirst.checkpointer.base import RunRecord, Step, StoredEffect
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.events import HitlRequestEvent
from askfirst.hitl import CheckpointedChannel
from askfirst.messages import AssistantMessage, ToolCall, UserMessage, call_digest
from askfirst.models import ScriptedModel
from askfirst.permissions import Decision, PendingAction
from askfirst.permissions.decision import Because
from askfirst.permissions.guardrails import tighten

pytestmark = pytest.mark.anyio
CALL = ToolCall("c1", "pay", {"cents": 4900})


def payer(keys: list[str] | None = None) -> Any:
    @tool(requires_approval=True, sentence="Pay {cents:money:EUR}", consequences=["money"])
    async def pay(cents: int, context: ToolContext) -> str:
        """Pay money."""
        if keys is not None:
            keys.append(context.idempotency_key)
        return f"paid {cents}"

    return pay


@pytest.mark.parametrize("with_channel", [False, True])
async def test_a_request_has_the_words_and_its_agent(tmp_path: Path, with_channel: bool) -> None:
    async with SQLiteCheckpointer(tmp_path / "a.db") as store:
        channel = CheckpointedChannel(checkpointer=store, thread_id="t") if with_channel else None
        agent = Agent(
            id="refund-desk",
            model=ScriptedModel([[CALL], "done"]),
            tools=[payer()],
            checkpointer=store,
            thread_id="t",
            channel=channel,
        )
        seen: list[Any] = []

        async def hear(event: Any) -> None:
            if isinstance(event, HitlRequestEvent):
                seen.append(event.request.payload)
                if with_channel:
                    await agent.respond(answer={"decision": "approve"})

        agent.subscribe(hear)
        await agent.prompt("pay")
        stored = await store.request("t", "c1")
        assert stored is not None
        payload: Any = stored.request.payload
        assert payload.words["sentence"] == "Pay 49.00 EUR"
        assert payload.words["consequences"] == ["money"]
        assert payload.sentences == ["Pay 49.00 EUR"]
        assert payload.details["agent_path"] == ["refund-desk"]
        assert [it.words["sentence"] for it in seen] == ["Pay 49.00 EUR"]


async def test_a_call_in_doubt_names_the_key_that_its_body_had(tmp_path: Path) -> None:
    keys: list[str] = []
    async with SQLiteCheckpointer(tmp_path / "a.db") as store:
        messages = [UserMessage("go"), AssistantMessage([CALL], stop_reason="tool_use")]
        digest = call_digest("pay", {"cents": 4900})
        begun = StoredEffect("c1", "pay", digest, "once", 1)
        step = Step("r", messages=messages, run=RunRecord("r"), started=[begun], release=True)
        await store.commit("t", step, fence=0, acquire=True)
        agent = Agent(
            model=ScriptedModel(["done"]), tools=[payer(keys)], checkpointer=store, thread_id="t", id="r"
        )
        paused = await agent.resume()
        asked: list[Any] = [it.request for it in await store.pending()]
        [doubt] = [it for it in asked if it.payload.kind == "escalate"]
        assert paused.status == "paused"
        assert doubt.payload.words["sentence"] == "Pay 49.00 EUR"
        await store.settle("t", doubt.question_id, {"action": "retry"}, by="ann", via="test")
        await agent.resume()
        for it in await store.pending():
            await store.settle("t", it.question_id, {"decision": "approve"}, by="ann", via="test")
        await agent.resume()
        assert keys == [doubt.payload.words["idempotency_key"]]


async def test_every_reason_to_ask_is_kept() -> None:
    action = PendingAction(tool="pay")
    rule = Decision(False, True, matched_rule_id="refunds", reason="Refunds need a person.")

    def large(_: PendingAction) -> Decision:
        return Decision.ask("It is large.")

    def quiet(_: PendingAction) -> None:
        return None

    [asked] = await tighten([rule], [action], [large, quiet])
    assert (asked.reason, asked.matched_rule_id) == ("Refunds need a person.", "refunds")
    assert asked.also == (Because("It is large.", None, {}),)
