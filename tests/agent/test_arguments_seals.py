"""An approval counts for what people are not shown, too: changed afterwards, the call is asked again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import anyio.to_thread
import pytest
from kit.channel_rigs import Rig, asked, open_rig
from kit.transcripts import assert_sound, results
from pydantic import BaseModel, BeforeValidator, Field, SecretStr

from askfirst import (
    Agent,
    AgentSpec,
    ApprovalResponse,
    RunCheckpoint,
    Tool,
    run_agent,
    run_agent_resume,
    tool,
)
from askfirst.agent.arguments import seal_of
from askfirst.agent.tools import json_object
from askfirst.checkpointer.base import RunRecord, Step, StoredEffect
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpoints import RunCheckpointStore, resume_checkpoint
from askfirst.hitl import InMemoryChannel
from askfirst.messages import AssistantMessage, ToolCall, UserMessage, call_digest
from askfirst.models import ScriptedModel
from askfirst.requests import HitlRequest, same_question, seal_in, with_seal

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}
EDIT = {"decision": "edit", "edited_args": {"cents": 7, "token": "**********", "ids": []}}
CALL = ToolCall("c1", "pay", {"cents": 5, "token": "tok-1", "region": "us"})


IDS: Any = Field(default_factory=list)
NONCE: Any = Field(default_factory=lambda: uuid4().hex, exclude=True)


class Ran(list[Any]):
    """What ran, and the tool that does it; ``token`` is what a later version of the tool uses in any case."""

    def tool(self, token: str | None = None, *, requires_approval: bool = True) -> Tool:
        secret = SecretStr if token is None else Annotated[SecretStr, BeforeValidator(lambda _: token)]

        @tool(requires_approval=requires_approval)
        def pay(
            cents: int,
            token: secret,  # pyright: ignore[reportInvalidTypeForm]
            region: Annotated[str, Field(exclude=True)] = "eu",
            ids: list[str] = IDS,
            nonce: str = NONCE,
        ) -> str:
            """Pay."""
            self.append((cents, token.get_secret_value(), region))
            return "paid"

        return pay


@pytest.fixture
def ran() -> Ran:
    return Ran()


def agent_on(store: Any, pay: Tool, *turns: Any) -> Agent:
    return Agent(model=ScriptedModel(turns or ["done"]), tools=[pay], checkpointer=store, thread_id="t")


@pytest.mark.parametrize("answer", [APPROVE, EDIT])
async def test_a_secret_that_changed_is_asked_about_again(
    checkpointer: SqlCheckpointer, ran: Ran, answer: Any
) -> None:
    await agent_on(checkpointer, ran.tool(), CALL).prompt("go")
    await checkpointer.settle("t", "c1", answer)
    paused = await agent_on(checkpointer, ran.tool("tok-9")).resume()
    assert (paused.status, ran) == ("paused", [])
    stored = await checkpointer.request("t", "c1")
    assert stored is not None
    assert stored.status == "pending"
    shown = stored.request.digest
    result = await agent_on(checkpointer, ran.tool("tok-9")).respond(answer=APPROVE, digest=shown)
    assert result is not None
    assert result.status == "completed"
    assert ran == [(5, "tok-9", "us")]


@pytest.mark.parametrize(("answer", "cents"), [(APPROVE, 5), (EDIT, 7)])
async def test_one_that_did_not_change_is_not(
    checkpointer: SqlCheckpointer, ran: Ran, answer: Any, cents: int
) -> None:
    await agent_on(checkpointer, ran.tool(), CALL).prompt("go")
    again = await agent_on(checkpointer, ran.tool()).resume()
    assert again.status == "paused"
    await checkpointer.settle("t", "c1", answer)
    assert (await agent_on(checkpointer, ran.tool()).resume()).status == "completed"
    assert ran == [(cents, "tok-1", "us")]


@pytest.mark.parametrize("approved", [False, True])
async def test_through_a_channel_too(stored_rig: Rig, ran: Ran, approved: bool) -> None:
    first = stored_rig.agent(model=ScriptedModel([CALL, "done"]), tools=[ran.tool()])
    task = stored_rig.start(first.prompt("go"))
    await asked(first.channel)
    await first.detach()
    await task
    if approved:
        await stored_rig.checkpointer.settle("t", "c1", APPROVE)
    agent = stored_rig.agent(model=ScriptedModel(["done"]), tools=[ran.tool("tok-9")])
    task = stored_rig.start(agent.resume())
    shown = await asked(agent.channel)
    assert ran == []
    await agent.respond(answer=APPROVE, digest=shown.digest)
    assert_sound((await task).messages)
    assert ran == [(5, "tok-9", "us")]


@pytest.mark.parametrize("channel", [False, True])
async def test_what_was_denied_stays_denied(stored_rig: Rig, ran: Ran, channel: bool) -> None:
    store = stored_rig.checkpointer
    await agent_on(store, ran.tool(), CALL).prompt("go")
    await store.settle("t", "c1", {"decision": "deny"})
    pay = ran.tool("tok-9")
    agent = stored_rig.agent(model=ScriptedModel(["sorry"]), tools=[pay]) if channel else agent_on(store, pay)
    assert (await agent.resume()).status == "completed"
    assert ran == []


async def test_an_unchanged_request_is_waited_for_as_it_is(rig: Rig, ran: Ran) -> None:
    """Another round would begin its time-out anew."""
    channel = rig.channel()
    first = rig.agent(channel, model=ScriptedModel([CALL, "done"]), tools=[ran.tool()])
    task = rig.start(first.prompt("go"))
    before = await asked(channel)
    await first.detach()
    await task
    await rig.clock.advance(60)
    agent = rig.later(first, model=ScriptedModel(["done"]), tools=[ran.tool()])
    task = rig.start(agent.resume())
    assert (await asked(agent.channel)).created_at == before.created_at
    await agent.respond(answer=APPROVE)
    assert (await task).status == "completed"
    assert ran == [(5, "tok-1", "us")]


# In storage.


@pytest.fixture
async def sqlite_rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig("sqlite", tmp_path) as rig:
        yield rig


async def rewrite(path: Path, statement: str) -> None:
    """Change the database behind everybody's back."""

    def run() -> int:
        with sqlite3.connect(path / "t.db") as connection:
            return connection.execute(statement).rowcount

    assert await anyio.to_thread.run_sync(run) == 1


def changed(old: str, new: str) -> str:
    return f"UPDATE askfirst_messages SET body = replace(body, '{old}', '{new}') WHERE role = 'assistant'"  # noqa: S608


@pytest.mark.parametrize("answered_first", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "then"),
    [('"tok-1"', '"tok-9"', (5, "tok-9", "us")), ('"us"', '"xx"', (5, "tok-1", "xx"))],
)
async def test_what_was_changed_in_storage_is_asked_about_again(
    sqlite_rig: Rig, tmp_path: Path, ran: Ran, old: str, new: str, then: Any, answered_first: bool
) -> None:
    store = sqlite_rig.checkpointer
    await agent_on(store, ran.tool(), CALL).prompt("go")
    if answered_first:
        await store.settle("t", "c1", APPROVE)
    await rewrite(tmp_path, changed(old, new))
    if not answered_first:
        await store.settle("t", "c1", APPROVE)
    assert (await agent_on(store, ran.tool()).resume()).status == "paused"
    assert ran == []
    shown = await store.request("t", "c1")
    assert shown is not None
    await store.settle("t", "c1", APPROVE, digest=shown.request.digest)
    assert (await agent_on(store, ran.tool()).resume()).status == "completed"
    assert ran == [then]


async def test_a_request_from_before_there_were_seals_still_counts(
    sqlite_rig: Rig, tmp_path: Path, ran: Ran
) -> None:
    store = sqlite_rig.checkpointer
    await agent_on(store, ran.tool(), CALL).prompt("go")
    await rewrite(tmp_path, "UPDATE askfirst_requests SET payload = json_remove(payload, '$.seal')")
    await store.settle("t", "c1", APPROVE)
    assert (await agent_on(store, ran.tool()).resume()).status == "completed"
    assert ran == [(5, "tok-1", "us")]


@pytest.mark.parametrize("channel", [False, True])
async def test_a_retry_counts_for_what_is_not_shown_too(
    sqlite_rig: Rig, tmp_path: Path, ran: Ran, channel: bool
) -> None:
    store, pay = sqlite_rig.checkpointer, ran.tool(requires_approval=False)
    begun = StoredEffect("c1", "pay", call_digest("pay", {}), "once", 1)
    said = [UserMessage("go"), AssistantMessage([CALL], stop_reason="tool_use")]
    await store.commit(
        "t", Step("r", said, started=[begun], run=RunRecord("agent"), release=True), fence=0, acquire=True
    )
    assert (await agent_on(store, pay).resume()).status == "paused"
    await store.settle("t", "c1:escalate:1", "retry")
    await rewrite(tmp_path, changed('"tok-1"', '"tok-9"'))
    if channel:
        agent = sqlite_rig.agent(model=ScriptedModel(["done"]), tools=[pay])
        task = sqlite_rig.start(agent.resume())
        await asked(agent.channel)
        await agent.detach()
        await task
    else:
        assert (await agent_on(store, pay).resume()).status == "paused"
    assert ran == []
    await store.settle("t", "c1:escalate:1~2", "retry")
    assert (await agent_on(store, pay).resume()).status == "completed"
    assert ran == [(5, "tok-9", "us")]


# Within a process, and as a value.


async def test_messages_that_differ_from_those_approved_are_asked_about_again(ran: Ran) -> None:
    channel = InMemoryChannel()
    first = Agent(model=ScriptedModel([CALL]), tools=[ran.tool()], channel=channel, thread_id="t")
    async with anyio.create_task_group() as group:
        group.start_soon(first.prompt, "go")
        request = await asked(channel)
        await first.detach()
    other = ToolCall("c1", "pay", {**CALL.args, "token": "tok-9"})
    messages = [first.messages[0], AssistantMessage([other], stop_reason="tool_use")]
    agent = Agent(
        model=ScriptedModel(["done"]), tools=[ran.tool()], channel=channel, thread_id="t", messages=messages
    )
    async with anyio.create_task_group() as group:
        group.start_soon(agent.resume)
        again = await asked(channel)
        assert seal_in(again) != seal_in(request)
        await agent.respond(answer=APPROVE, digest=again.digest)
    assert ran == [(5, "tok-9", "us")]


def spec(ran: Ran, *turns: Any) -> AgentSpec:
    return AgentSpec("payer", ScriptedModel(turns or ["done"]), tools=[ran.tool()])


@pytest.mark.parametrize("changes", [False, True])
async def test_a_checkpoint_keeps_the_seal(ran: Ran, changes: bool) -> None:
    paused = await run_agent(spec(ran, CALL), "go")
    assert paused.checkpoint is not None
    text = paused.checkpoint.to_json()
    seals = json.loads(text)["seals"]
    for shown in (json.dumps(json.loads(text)["pending"]), repr(paused.pending_approvals)):
        assert not any(part in shown for part in seals["c1"].split(":"))
        assert "tok-1" not in shown
    text = text.replace('"tok-1"', '"tok-9"') if changes else text
    yes = [ApprovalResponse(id="c1", decision="approve")]
    result = await run_agent_resume(spec(ran), RunCheckpoint.from_json(text), yes)
    assert result.status == ("paused" if changes else "completed")
    assert ran == ([] if changes else [(5, "tok-1", "us")])


@pytest.mark.parametrize("changes", [False, True])
async def test_a_checkpoint_that_was_put_into_a_store_keeps_it(
    checkpointer: SqlCheckpointer, ran: Ran, changes: bool
) -> None:
    paused = await run_agent(spec(ran, CALL), "go")
    assert paused.checkpoint is not None
    text = paused.checkpoint.to_json()
    checkpoint = RunCheckpoint.from_json(text.replace('"tok-1"', '"tok-9"') if changes else text)
    store = RunCheckpointStore(checkpointer)
    checkpoint_id = await store.save("payer", checkpoint)
    yes = [ApprovalResponse(id="c1", decision="approve")]
    result = await resume_checkpoint(spec(ran), checkpoint_id, yes, store=store)
    assert result.status == ("paused" if changes else "completed")
    assert ran == ([] if changes else [(5, "tok-1", "us")])


async def test_an_answer_kept_in_a_checkpoint_keeps_it(ran: Ran) -> None:
    """Of two calls one is answered; the other is waited for, and the answer travels."""
    second = ToolCall("c2", "pay", {"cents": 6, "token": "tok-2"})
    paused = await run_agent(spec(ran, [CALL, second]), "go")
    yes = [ApprovalResponse(id=each, decision="approve") for each in ("c1", "c2")]
    assert paused.checkpoint is not None
    paused = await run_agent_resume(spec(ran), paused.checkpoint, yes[:1])
    assert paused.checkpoint is not None
    text = paused.checkpoint.to_json().replace('"tok-1"', '"tok-9"')
    again = await run_agent_resume(spec(ran), RunCheckpoint.from_json(text), yes[1:])
    assert [each.id for each in again.pending_approvals] == ["c1"]
    assert ran == []


# What a seal is, and where it is not.


async def test_a_seal_is_in_the_row_and_nowhere_else(sqlite_rig: Rig, tmp_path: Path, ran: Ran) -> None:
    store = sqlite_rig.checkpointer
    agent = agent_on(store, ran.tool(), CALL, "done")
    events: list[Any] = []
    agent.subscribe(events.append)
    paused = await agent.prompt("go")
    stored = await store.request("t", "c1")
    seal = seal_in(stored.request)
    assert seal is not None
    assert "tok-1" not in seal

    def read() -> str:
        with sqlite3.connect(tmp_path / "t.db") as connection:
            return connection.execute("SELECT payload FROM askfirst_requests").fetchone()[0]

    assert json.loads(await anyio.to_thread.run_sync(read))["seal"] == seal
    await store.settle("t", "c1", APPROVE)
    result = await agent.resume()
    told = [stored, stored.request.model_dump_json(), paused, result, *events]
    told += [event.model_dump_json() for event in events if isinstance(event, BaseModel)]
    told += [stored.request.model_dump(), dict(stored.request.payload)]
    assert not any(part in repr(each) for each in told for part in seal.split(":"))
    assert results(result.messages)["c1"].details is not None


def test_what_is_shown_whole_has_no_seal() -> None:
    class Args(BaseModel):
        amount: int
        tags: list[str] = Field(default_factory=list)
        made: str = Field(default_factory=lambda: uuid4().hex)

    args = Args(amount=5)
    assert seal_of(args, json_object(args)) is None


class Login(BaseModel):
    keys: set[SecretStr]
    made: str = Field(default_factory=lambda: uuid4().hex, exclude=True)


def seal(args: BaseModel, known: str | None = None) -> str:
    made = seal_of(args, json_object(args), known)
    assert made is not None
    return made


def test_seals_of_one_call_are_equal_if_the_arguments_are() -> None:
    keys = [f"key-{n}" for n in range(50)]
    first, same, other = (
        Login.model_validate({"keys": given}) for given in (keys, keys[::-1], [*keys[1:], "x"])
    )
    assert seal(first) != seal(first), "a short secret cannot be looked up"
    known = seal(first)
    assert seal(same, known) == known
    assert seal(other, known) != known
    plain = Login.model_validate({"keys": []})
    assert seal(plain, known) != known, "and one of nothing hidden is none of something hidden"


def test_a_question_is_the_same_if_its_seal_is() -> None:
    args = {"a": 1}
    payload = {"kind": "approve", "tool_name": "t", "tool_call_id": "c", "args": args}
    payload["digest"] = call_digest("t", args)
    bare = HitlRequest.model_validate({"question_id": "c", "payload": payload, "created_at": 0})
    one, two = with_seal(bare, "s:1"), with_seal(bare, "s:2")
    assert same_question(one, one.payload)
    assert not same_question(one, two.payload)
    assert not same_question(one, bare.payload)
    assert same_question(bare, one.payload), "it was asked before there were seals"
