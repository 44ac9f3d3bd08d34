"""What a channel and its middleware are given: time-outs, choices, reasons, edits, async functions."""

from __future__ import annotations

import asyncio
import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from kit.channel_rigs import Rig, asked
from kit.transcripts import results
from pydantic import BaseModel, field_validator

from askfirst import Agent, ToolCallContext, tool
from askfirst.agent.tools import Tool
from askfirst.hitl import (
    ApprovalPolicyMiddleware,
    ApproveRequest,
    AskUser,
    ConfirmToolCallMiddleware,
    HitlAborted,
    HitlCancelled,
    HitlInvalidAnswer,
    HitlInvalidRequest,
    HitlTimedOut,
    InMemoryChannel,
    Option,
    Question,
)
from askfirst.hitl.testing import NoopChannel, ScriptedChannel
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.requests import StoredRequest

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}


# Time-outs.

ODD = [math.inf, -math.inf, math.nan, 1e300, 10**400, -1, -0.5, True, False, "5", object()]


@pytest.mark.parametrize("seconds", ODD, ids=lambda odd: type(odd).__name__)
async def test_a_time_out_that_is_none_is_refused(rig: Rig, seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"^a time-out is .+, or None for no limit; ") as by_default:
        rig.channel(default_timeout=seconds)
    channel = rig.channel()
    with pytest.raises(ValueError, match=r"^a time-out is ") as by_call:
        await channel.confirm("?", timeout=seconds)
    assert str(by_call.value) == str(by_default.value)
    assert channel.pending is None
    assert await channel.open_request() is None


async def test_it_is_refused_where_nobody_waits_too() -> None:
    with pytest.raises(ValueError, match="a time-out is"):
        await ScriptedChannel([True]).confirm("?", timeout=-1)
    with pytest.raises(ValueError, match="a time-out is"):
        NoopChannel(default_timeout=math.nan)


async def test_no_time_at_all_is_a_time_out(rig: Rig) -> None:
    with pytest.raises(HitlTimedOut):
        await rig.channel().confirm("?", timeout=0)


async def test_the_longest_time_out_can_be_kept(rig: Rig) -> None:
    channel = rig.channel(default_timeout=1e12)
    task = rig.start(channel.confirm("?"))
    request = await asked(channel)
    assert request.timeout_seconds == 1e12
    await channel.answer(request.question_id, True)
    assert await task is True


# Choices.


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ((), "nothing to choose from"),
        (["retry", "retry"], "'retry' is there twice"),
        (["retry", ""], "'' has none"),
        (["retry", " "], "' ' has none"),
        ("abort", "'abort' is a single one"),
    ],
)
async def test_choices_that_nobody_could_choose_from_are_refused(rig: Rig, choices: Any, why: str) -> None:
    channel = rig.channel()
    with pytest.raises(ValueError, match=why):
        await channel.escalate("What now?", choices=choices, timeout=0)
    assert await channel.open_request() is None


# Texts and details.


@pytest.mark.parametrize(
    ("verb", "given", "why"),
    [
        ("confirm", ["Delete caf\udce9.txt?"], "prompt is not valid Unicode"),
        ("confirm", [5], "prompt cannot be asked like this: Input should be a valid string"),
        ("escalate", ["caf\udce9?"], "prompt is not valid Unicode"),
        ("approve", ["send", "caf\udce9", {}], "tool_call_id is not valid Unicode"),
        ("ask", [[Question(key="k", prompt="caf\udce9")]], "questions cannot be written as JSON: "),
        ("ask", [[Question(key="k", prompt="?", hint=object())]], "questions cannot be written as JSON: "),
        (
            "ask",
            [[Question(key="k", prompt="?", options=[Option(label="caf\udce9", value="v")])]],
            "questions cannot be written as JSON: ",
        ),
        ("ask", [[{"key": "k"}]], "questions.0.prompt cannot be asked like this: Field required"),
        ("ask", [[]], "there is no question to ask"),
        (
            "ask",
            [[Question(key="k", prompt="one"), Question(key="k", prompt="two")]],
            "each question needs a different key; 'k' is there twice",
        ),
    ],
)
async def test_what_cannot_be_shown_is_not_asked(rig: Rig, verb: str, given: list[Any], why: str) -> None:
    channel = rig.channel()
    with pytest.raises(HitlInvalidRequest, match=f"^{why}"):
        await getattr(channel, verb)(*given)
    assert channel.pending is None
    assert await channel.open_request() is None


async def test_choices_that_are_no_text_are_refused(rig: Rig) -> None:
    channel = rig.channel()
    with pytest.raises(HitlInvalidRequest, match=r"^choices cannot be written as JSON: "):
        await channel.escalate("What now?", choices=["caf\udce9"])
    assert await channel.open_request() is None


class Place(BaseModel):
    name: str


DAY = datetime.datetime(2026, 11, 16, 9, 30, tzinfo=datetime.UTC)


async def test_details_are_shown_as_json(rig: Rig) -> None:
    channel = rig.channel()
    details = {
        "when": DAY,
        "who": {"ada"},
        "where": Place(name="Rome"),
        "file": Path("a/b"),
        1: Decimal("2.50"),
    }
    for verb, given in (("confirm", ["Sure?"]), ("approve", ["send", "c1", {}]), ("escalate", ["Hm?"])):
        task = rig.start(getattr(channel, verb)(*given, details=details))
        payload = (await asked(channel)).payload
        assert payload.details == {
            "when": "2026-11-16T09:30:00Z",
            "who": ["ada"],
            "where": {"name": "Rome"},
            "file": "a/b",
            "1": "2.50",
        }
        assert channel.pending is not None
        await channel.cancel(channel.pending.question_id)
        with pytest.raises(HitlCancelled):
            await task


def _nested() -> dict[str, Any]:
    outer: dict[str, Any] = {}
    inner = outer
    for _ in range(300):
        inner["in"] = inner = {}
    return outer


@pytest.mark.parametrize(
    "details",
    [{"file": "caf\udce9.txt"}, {"caf\udce9": 1}, {"x": object()}, _nested(), ["no names"]],
    ids=["text", "name", "object", "deep", "list"],
)
async def test_details_that_cannot_be_shown_are_refused(rig: Rig, details: Any) -> None:
    channel = rig.channel()
    with pytest.raises(
        HitlInvalidRequest, match=r"^details (cannot be written as JSON: |have to be a mapping)"
    ):
        await channel.confirm("Sure?", details=details)
    assert await channel.open_request() is None


async def test_what_cannot_be_asked_at_the_gate_denies_the_call(rig: Rig) -> None:
    @tool
    def delete(name: str) -> str:
        """Delete a file."""
        return "deleted"

    channel = rig.channel()
    model = ScriptedModel([ToolCall("c1", "delete", {"name": "x"}), "Done."])
    asks = ConfirmToolCallMiddleware(channel, details_fn=lambda ctx: {"file": "caf\udce9.txt"})
    agent = rig.agent(channel, model=model, tools=[delete], middleware=[asks])
    result = await agent.prompt("go")
    assert (result.status, results(result.messages)["c1"].is_error) == ("completed", True)
    assert "HitlInvalidRequest" in results(result.messages)["c1"].text


# Reasons.


async def test_no_reason_makes_a_cancel_an_abort(rig: Rig) -> None:
    signal = asyncio.Event()
    channel = rig.channel()
    task = rig.start(channel.confirm("?", signal=signal))
    await asked(channel)
    signal.set()
    with pytest.raises(HitlAborted) as aborted:
        await task
    assert await channel.open_request() is None
    task = rig.start(channel.confirm("?", signal=asyncio.Event()))
    request = await asked(channel)
    await channel.cancel(request.question_id, aborted.value.reason)
    with pytest.raises(HitlCancelled, match=aborted.value.reason):
        await task


class _Slow(InMemoryChannel):
    """One whose store tells of a cancel before, or instead of, whoever asked for it."""

    _is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.cancelling = asyncio.Event()
        self.go_on = asyncio.Event()
        self.settled_by_store: asyncio.Future[StoredRequest] = asyncio.Future()

    async def _cancel(self, question_id: str, reason: str) -> StoredRequest:
        self.cancelling.set()
        await self.go_on.wait()
        return await super()._cancel(question_id, reason)

    async def _settled_elsewhere(self, question_id: str) -> StoredRequest:
        return await self.settled_by_store


@pytest.mark.parametrize(("is_ours", "outcome"), [(True, HitlAborted), (False, HitlCancelled)])
async def test_whose_cancel_it_was_is_known_when_the_store_is_faster(
    is_ours: bool, outcome: type[BaseException]
) -> None:
    channel, signal = _Slow(), asyncio.Event()
    task = asyncio.create_task(channel.confirm("?", signal=signal))
    request = await asked(channel)
    signal.set()
    await channel.cancelling.wait()
    reason = "its signal was set"
    if not is_ours:
        await InMemoryChannel._cancel(channel, request.question_id, reason)
    channel.settled_by_store.set_result(StoredRequest(request, "", None, "cancelled", reason=reason))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done(), "whose it is, is not known yet"
    channel.go_on.set()
    with pytest.raises(outcome):
        await task


# Edits of a tool that the channel's agent, if it has one, does not have.


class _Even(BaseModel):
    amount: int

    @field_validator("amount")
    @classmethod
    def even(cls, amount: int) -> int:
        if amount % 2:
            raise ValueError("odd amounts are not paid")
        return amount


def payer(paid: list[int]) -> Tool:
    async def pay(args: Any) -> str:
        paid.append(args.amount)
        return f"paid {args.amount}"

    return Tool(name="pay", parameters=_Even, function=pay)


@pytest.mark.parametrize("belongs", [False, True], ids=["unbound", "another's"])
@pytest.mark.parametrize("layer", [ConfirmToolCallMiddleware, ApprovalPolicyMiddleware])
async def test_a_bad_edit_is_refused_when_it_is_given(rig: Rig, layer: Any, belongs: bool) -> None:
    paid: list[int] = []
    channel = rig.channel()
    if belongs:

        @tool
        async def pay(amount: str) -> str:
            return amount

        rig.agent(channel, model=ScriptedModel([]), tools=[pay])
    middleware = (
        layer(channel) if layer is ConfirmToolCallMiddleware else layer(channel, lambda ctx: AskUser())
    )
    call = ToolCall("c1", "pay", {"amount": 2})
    agent = Agent(model=ScriptedModel([call, "done"]), tools=[payer(paid)], middleware=[middleware])
    task = rig.start(agent.prompt("go"))
    request = await asked(channel)
    assert isinstance(request.payload, ApproveRequest)
    assert request.payload.args_schema is not None
    assert request.payload.args_schema["properties"]["amount"]["type"] == "integer"
    for amount in ("nine", 3):
        with pytest.raises(HitlInvalidAnswer, match="amount"):
            await channel.answer("c1", {"decision": "edit", "edited_args": {"amount": amount}})
        assert channel.pending == request
    await channel.answer("c1", {"decision": "edit", "edited_args": {"amount": 4}})
    assert results((await task).messages)["c1"].text.endswith("paid 4")
    assert paid == [4]


# Functions that may be async.


@pytest.mark.parametrize(("says", "asked_about"), [(True, ["c1"]), (False, [])])
async def test_a_predicate_may_be_async(says: bool, asked_about: list[str]) -> None:
    async def predicate(ctx: ToolCallContext) -> bool:
        await asyncio.sleep(0)
        return says

    channel, paid = ScriptedChannel([APPROVE]), list[int]()
    await _pay(paid, ConfirmToolCallMiddleware(channel, predicate))
    assert [request.question_id for request in channel.history] == asked_about
    assert paid == [2]


async def test_details_may_come_from_an_async_function() -> None:
    async def details(ctx: ToolCallContext) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"balance": 7}

    channel, paid = ScriptedChannel([APPROVE]), list[int]()
    await _pay(paid, ConfirmToolCallMiddleware(channel, details_fn=details))
    (request,) = channel.history
    assert isinstance(request.payload, ApproveRequest)
    assert request.payload.details == {"balance": 7}
    assert paid == [2]


async def test_an_async_predicate_that_raises_blocks_the_call() -> None:
    async def broken(ctx: ToolCallContext) -> bool:
        raise RuntimeError("the ledger is away")

    paid: list[int] = []
    await _pay(paid, ConfirmToolCallMiddleware(ScriptedChannel([APPROVE]), broken))
    assert paid == []


async def _pay(paid: list[int], middleware: ConfirmToolCallMiddleware) -> None:
    call = ToolCall("c1", "pay", {"amount": 2})
    agent = Agent(model=ScriptedModel([call, "done"]), tools=[payer(paid)], middleware=[middleware])
    assert (await agent.prompt("go")).status == "completed"
