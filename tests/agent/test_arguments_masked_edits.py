"""Edits of arguments that are not shown whole: what is given back as it was shown stays what it was."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from kit.channel_rigs import Rig, asked
from pydantic import BaseModel, Field, PlainSerializer, RootModel, Secret, SecretBytes, SecretStr

from askfirst import Agent, BeforeToolCallResult, Middleware, Tool, ToolCallContext, tool
from askfirst.agent.arguments import MISPLACED, parse_edit, unmasked, whole
from askfirst.agent.tools import json_object
from askfirst.checkpointer.base import RunRecord, Step, StoredEffect
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import HitlInvalidAnswer
from askfirst.events import HitlAnswerEvent
from askfirst.hitl import CheckpointedChannel, ConfirmToolCallMiddleware
from askfirst.hitl.testing import ScriptedChannel
from askfirst.json_schema import schema_faults
from askfirst.messages import AssistantMessage, ToolCall, UserMessage, call_digest
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
MASK = "**********"
Long = Annotated[SecretStr, Field(min_length=20)]
KEY = "sk-0123456789abcdefghij"
Stars = Annotated[str, PlainSerializer(lambda _: "***")]


class Cred(BaseModel):
    user: str
    password: SecretStr
    realm: Annotated[str, Field(exclude=True)] = "main"


@dataclass
class Pair:
    name: str
    key: SecretStr


Rooted = RootModel[list[SecretStr]]


def tool_with(kind: Any, got: list[Any], *, requires_approval: bool = True, **field: Any) -> Tool:
    annotation = Annotated[kind, Field(**field)] if field else kind

    @tool(requires_approval=requires_approval)
    def act(amount: int, it: annotation) -> str:
        """Act."""
        got.append((amount, whole(it)))
        return "done"

    return act


CASES: dict[str, tuple[Any, Any]] = {
    "secret": (SecretStr, "x"),
    "optional": (SecretStr | None, "x"),
    "bytes": (SecretBytes, "x"),
    "of a type": (Secret[int], 7),
    "long": (Long, KEY),
    "model": (Cred, {"user": "u", "password": "x", "realm": "other"}),
    "models": (list[Cred], [{"user": "u", "password": "x", "realm": "other"}]),
    "union": (int | Cred, {"user": "u", "password": "x", "realm": "other"}),
    "dataclass": (Pair, {"name": "n", "key": "x"}),
    "list": (list[SecretStr], ["x", "y"]),
    "tuple": (tuple[str, SecretStr], ["a", "y"]),
    "dict": (dict[str, SecretStr], {"a": "x", "b": "y"}),
    "numbered": (dict[int, SecretStr], {"1": "x"}),
    "root": (Rooted, ["x", "y"]),
    "own mask": (Stars, "x"),
    "own masks": (list[Stars], ["x", "y"]),
}


@pytest.mark.parametrize("name", CASES)
async def test_another_argument_is_edited_and_they_stay(name: str) -> None:
    kind, value = CASES[name]
    got: list[Any] = []
    channel = ScriptedChannel([lambda request: edit(request.payload.args, amount=2)])
    call = ToolCall("c1", "act", {"amount": 1, "it": value})
    agent = Agent(model=ScriptedModel([call, "done"]), tools=[tool_with(kind, got)], channel=channel)
    await agent.prompt("go")
    assert got == [(2, value)]
    shown: Any = channel.history[0].payload
    assert shown.args["it"] != value


def edit(shown: Any, **changes: Any) -> dict[str, Any]:
    return {"decision": "edit", "edited_args": {**shown, **changes}}


@pytest.mark.parametrize(
    ("kind", "value", "edited", "then"),
    [
        (
            Cred,
            {"user": "u", "password": "x"},
            {"user": "v", "password": MASK},
            {"user": "v", "password": "x"},
        ),
        (
            Cred,
            {"user": "u", "password": "x"},
            {"user": "u", "password": "y"},
            {"user": "u", "password": "y"},
        ),
        (dict[str, SecretStr], {"a": "x", "b": "y"}, {"b": MASK}, {"b": "y"}),
        (dict[str, SecretStr], {"a": "x"}, {"a": MASK, "b": "z"}, {"a": "x", "b": "z"}),
        (list[SecretStr], ["x", "y"], [MASK, "z"], ["x", "z"]),
        (list[SecretStr], ["x", "y"], ["z"], ["z"]),
        (list[Stars], ["x", "y"], ["***", "z"], ["x", "z"]),
    ],
)
async def test_a_part_is_edited_and_the_rest_stays(kind: Any, value: Any, edited: Any, then: Any) -> None:
    got: list[Any] = []
    act = tool_with(kind, got)
    args = act.parameters.model_validate({"amount": 1, "it": value})
    read = parse_edit(act, args, {"amount": 1, "it": edited})
    assert not isinstance(read, str)
    given = whole(read)["it"]
    assert given == ({**then, "realm": "main"} if kind is Cred else then)


@pytest.mark.parametrize("by", ["alias", "taken name"])
async def test_by_whatever_name_they_are_shown(by: str) -> None:
    got: list[Any] = []

    @tool(name="act", requires_approval=True)
    def aliased(amount: int, key: Annotated[SecretStr, Field(alias="apiKey")]) -> str:
        got.append((amount, key.get_secret_value()))
        return "done"

    @tool(name="act", requires_approval=True)
    def taken(amount: int, json: SecretStr) -> str:
        got.append((amount, json.get_secret_value()))
        return "done"

    name, act = ("apiKey", aliased) if by == "alias" else ("json", taken)
    channel = ScriptedChannel([lambda request: edit(request.payload.args, amount=2)])
    call = ToolCall("c1", "act", {"amount": 1, name: "x"})
    await Agent(model=ScriptedModel([call, "done"]), tools=[act], channel=channel).prompt("go")
    assert got == [(2, "x")]


async def test_what_is_left_out_and_required_is_no_fault() -> None:
    got: list[Any] = []

    @tool(requires_approval=True)
    def act(amount: int, region: Annotated[str, Field(exclude=True)]) -> str:
        got.append((amount, region))
        return "done"

    async with MemoryCheckpointer() as store:
        call = ToolCall("c1", "act", {"amount": 1, "region": "us"})
        agent = Agent(model=ScriptedModel([call, "done"]), tools=[act], checkpointer=store)
        await agent.prompt("go")
        await store.settle(agent.thread_id, "c1", edit({"amount": 2}))
        await agent.resume()
    assert got == [(2, "us")]


# Where a mask would reach the tool.

MOVED = [
    (list[SecretStr], ["x", "y"], [MASK]),
    (list[SecretStr], ["x", "y"], [MASK, MASK, "z"]),
    (dict[str, SecretStr], {"a": "x"}, {"b": MASK}),
    (list[Cred], [{"user": "u", "password": "x"}] * 2, [{"user": "u", "password": MASK}]),
    (list[Stars], ["x", "y"], ["***"]),
    (dict[str, Stars], {"a": "x"}, {"b": "***"}),
]


@pytest.mark.parametrize(("kind", "value", "edited"), MOVED)
async def test_a_mask_in_another_place_is_refused_when_it_is_given(
    kind: Any, value: Any, edited: Any
) -> None:
    got: list[Any] = []
    channel = ScriptedChannel([edit({"amount": 1, "it": edited})])
    call = ToolCall("c1", "act", {"amount": 1, "it": value})
    agent = Agent(model=ScriptedModel([call, "done"]), tools=[tool_with(kind, got)], channel=channel)
    with pytest.raises(HitlInvalidAnswer, match="a mask stands here"):
        await agent.prompt("go")
    assert got == []


@pytest.mark.parametrize(("kind", "value", "edited"), MOVED)
async def test_and_at_the_gate_if_it_was_given_elsewhere(kind: Any, value: Any, edited: Any) -> None:
    got: list[Any] = []
    async with MemoryCheckpointer() as store:
        call = ToolCall("c1", "act", {"amount": 1, "it": value})
        agent = Agent(model=ScriptedModel([call, "done"]), tools=[tool_with(kind, got)], checkpointer=store)
        await agent.prompt("go")
        await store.settle(agent.thread_id, "c1", edit({"amount": 1, "it": edited}))
        result = await agent.resume()
    assert got == []
    assert MISPLACED in result.messages[2].text
    record: Any = result.messages[2].details
    assert record["hitl"]["decision"] == "invalid_edit"
    assert "edited_args" not in record["hitl"]


async def test_a_text_that_looks_like_a_mask_is_a_text() -> None:
    class Args(BaseModel):
        note: str
        key: SecretStr

    args = Args(note=MASK, key=SecretStr("x"))
    shown = json_object(args)
    restored, faults = unmasked(args, shown, {"note": MASK, "key": MASK})
    assert (whole(Args.model_validate(restored)), faults) == ({"note": MASK, "key": "x"}, [])
    assert unmasked(args, shown, {"note": "***", "key": "y"}) == ({"note": "***", "key": "y"}, [])


# Where an edit is checked.


@pytest.mark.parametrize("kind", [Long, Long | None, list[Long], Secret[int]])
async def test_a_mask_is_not_held_to_what_holds_for_the_value(kind: Any) -> None:
    """Where the tool is not known, the schema is all there is."""
    got: list[Any] = []
    value: Any = [KEY] if kind == list[Long] else 7 if kind == Secret[int] else KEY
    async with MemoryCheckpointer() as store:
        call = ToolCall("c1", "act", {"amount": 1, "it": value})
        agent = Agent(model=ScriptedModel([call, "done"]), tools=[tool_with(kind, got)], checkpointer=store)
        await agent.prompt("go")
        request: Any = await store.load_pending_request(agent.thread_id)
        short = ["short"] if kind == list[Long] else "short"
        with pytest.raises(HitlInvalidAnswer):
            await store.settle(agent.thread_id, "c1", edit(request.payload.args, it=short))
        await store.settle(agent.thread_id, "c1", edit(request.payload.args, amount=2))
        await agent.resume()
    assert got == [(2, value)]


def test_nor_inside_a_choice_of_models() -> None:
    class Basic(BaseModel):
        user: str
        password: Long

    class Token(BaseModel):
        token: Long

    act = tool_with(Basic | Token, [])
    assert act.args_schema is not None
    shown = {"amount": 1, "it": {"user": "u", "password": MASK}}
    edited = {"amount": 1, "it": {"user": "v", "password": MASK}}
    assert schema_faults(act.args_schema, edited, shown) == []
    assert schema_faults(act.args_schema, {"amount": 1, "it": {"token": "short"}}, shown) != []


def test_what_is_missing_in_a_new_entry_is_missed() -> None:
    act = tool_with(list[Cred], [])
    assert act.args_schema is not None
    shown = {"amount": 1, "it": [{"user": "u", "password": MASK}]}
    edited = {"amount": 1, "it": [{"user": "u", "password": MASK}, {"user": "v"}]}
    assert schema_faults(act.args_schema, edited, shown) == [(("it", "1", "password"), "is missing")]


async def test_a_resumed_agent_knows_them_from_the_transcript(stored_rig: Rig) -> None:
    got: list[Any] = []
    act = tool_with(Long, got)
    call = ToolCall("c1", "act", {"amount": 1, "it": KEY})
    first = stored_rig.agent(model=ScriptedModel([call, "done"]), tools=[act])
    task = stored_rig.start(first.prompt("go"))
    request: Any = await asked(first.channel)
    await first.detach()
    await task
    agent = stored_rig.agent(model=ScriptedModel(["done"]), tools=[act])
    await agent.respond(question_id="c1", answer=edit(request.payload.args, amount=2))
    assert got == [(2, KEY)]


class Elsewhere(Middleware):
    """Calls with another key, before anybody is asked."""

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult:
        return BeforeToolCallResult(edited_args={"amount": 9, "it": f"{KEY}{KEY}"})


async def test_one_that_middleware_gave_is_not_in_the_transcript(stored_rig: Rig) -> None:
    got: list[Any] = []
    act = tool_with(Long, got)
    call = ToolCall("c1", "act", {"amount": 1, "it": KEY})
    middleware = [Elsewhere()]
    first = stored_rig.agent(model=ScriptedModel([call, "done"]), tools=[act], middleware=middleware)
    task = stored_rig.start(first.prompt("go"))
    request: Any = await asked(first.channel)
    await first.detach()
    await task
    agent = stored_rig.agent(model=ScriptedModel(["done"]), tools=[act], middleware=middleware)
    await agent.respond(question_id="c1", answer=edit(request.payload.args, amount=2))
    assert got == [(2, f"{KEY}{KEY}")]


@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize(
    ("kind", "value"),
    [(Long, KEY), (Cred, {"user": "u", "password": "x", "realm": "other"}), (list[SecretStr], ["x"])],
)
async def test_a_retry_leaves_them_as_they_are(kind: Any, value: Any, channel: bool) -> None:
    got: list[Any] = []
    act = tool_with(kind, got, requires_approval=False)
    call = ToolCall("c1", "act", {"amount": 1, "it": value})
    async with MemoryCheckpointer() as store:
        begun = StoredEffect("c1", "act", call_digest("act", {}), "once", 1)
        said = [UserMessage("go"), AssistantMessage([call], stop_reason="tool_use")]
        step = Step("r", said, started=[begun], run=RunRecord("agent"), release=True)
        await store.commit("t", step, fence=0, acquire=True)
        options: dict[str, Any] = {"model": ScriptedModel(["done"]), "tools": [act], "thread_id": "t"}
        if channel:
            options["channel"] = CheckpointedChannel(checkpointer=store, thread_id="t")
        first = Agent(**options, checkpointer=store)
        if not channel:
            await first.resume()
        else:
            await Agent(**{**options, "channel": None}, checkpointer=store).resume()
        request: Any = await first.load_pending_hitl_request()
        changed = {**request.payload.details["args"], "amount": 2}
        result = await first.respond(answer={"action": "retry", "modified_params": changed})
        assert result is not None
    assert got == [(2, value)]
    record: Any = result.messages[2].details
    assert record["hitl"]["edited_args"] == changed


# What a person types.


@pytest.mark.parametrize("middleware", [False, True])
async def test_a_secret_that_a_person_types_is_told_nobody_but_the_tool(
    rig: Rig, middleware: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    got: list[Any] = []
    act = tool_with(Cred, got)
    channel = rig.channel()
    layers = [ConfirmToolCallMiddleware(channel)] if middleware else []
    call = ToolCall("c1", "act", {"amount": 1, "it": {"user": "u", "password": "x"}})
    agent = rig.agent(channel, model=ScriptedModel([call, "done"]), tools=[act], middleware=layers)
    events: list[Any] = []
    agent.subscribe(events.append)
    task = rig.start(agent.prompt("go"))
    await asked(channel)
    typed = {"amount": 1, "it": {"user": "u", "password": "TYPED", "realm": "TYPED"}}
    await channel.answer("c1", {"decision": "edit", "edited_args": typed, "reason": "mine"})
    result = await task
    assert got == [(1, typed["it"])]
    shown = {"amount": 1, "it": {"user": "u", "password": MASK}}
    (answered,) = [event for event in events if isinstance(event, HitlAnswerEvent)]
    assert answered.answer == {"decision": "edit", "edited_args": shown, "reason": "mine"}
    record: Any = result.messages[2].details
    assert record["hitl"]["edited_args"] == shown
    assert record["hitl"]["digest"] == call_digest("act", shown)
    for said in (*events, *result.messages, caplog.text):
        assert "TYPED" not in repr(said)


async def test_nor_is_one_that_does_not_fit() -> None:
    """An answer from another process, about a tool that takes something else by now."""
    got: list[Any] = []
    call = ToolCall("c1", "act", {"amount": 1, "it": "x"})
    async with MemoryCheckpointer() as store:
        first = Agent(
            model=ScriptedModel([call]), tools=[tool_with(SecretStr, got)], checkpointer=store, thread_id="t"
        )
        await first.prompt("go")
        await store.settle("t", "c1", edit({"amount": 2, "it": "TYPED"}))
        channel = CheckpointedChannel(checkpointer=store, thread_id="t")
        act = tool_with(SecretStr, got, min_length=1, max_length=3)
        agent = Agent(model=ScriptedModel(["done"]), tools=[act], channel=channel, thread_id="t")
        events: list[Any] = []
        agent.subscribe(events.append)
        result = await agent.resume()
    assert got == []
    assert any(isinstance(event, HitlAnswerEvent) for event in events)
    assert not any("TYPED" in repr(said) for said in (*events, *result.messages))


async def test_what_is_asked_about_no_tool_is_told_as_it_was_answered(rig: Rig) -> None:
    channel = rig.channel()
    agent = rig.agent(channel, model=ScriptedModel([lambda _: "done"]))
    events: list[Any] = []
    agent.subscribe(events.append)
    task = rig.start(channel.approve("deploy", "d1", {"to": "staging"}))
    await asked(channel)
    await channel.answer("d1", edit({"to": "production"}))
    await task
    (answered,) = [event for event in events if isinstance(event, HitlAnswerEvent)]
    assert answered.answer["edited_args"] == {"to": "production"}
