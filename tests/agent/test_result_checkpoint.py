"""What a paused run says of itself, and that it can be believed: checkpoints written, read, old, broken, altered."""

from __future__ import annotations

import asyncio
import time

import pytest
from kit.deeds import (
    Deeds,
    account_spec,
    approve,
    call,
    completed,
    go_on,
    hitl,
    mailer,
    paused_at,
    pending_ids,
    script,
)
from kit.paths import DATA

from askfirst import (
    Agent,
    AgentSpec,
    ApprovalResponse,
    BeforeToolCallResult,
    Middleware,
    RunCheckpoint,
    ToolCallContext,
    ToolContext,
    run_agent,
    run_agent_resume,
    tool,
)
from askfirst.errors import InvalidMessage
from askfirst.messages import AssistantMessage, Message, ToolCall, Usage, UserMessage, call_digest

pytestmark = pytest.mark.anyio


# What a paused run says.


async def test_every_pending_call_of_the_message_at_once() -> None:
    deeds = Deeds()
    spec = mailer(deeds, [call("c1", "mail", "a"), call("c2", "look"), call("c3", "mail", "b")], "done")
    paused = await run_agent(spec, "go")
    assert pending_ids(paused) == ["c1", "c3"]
    assert deeds.done == []  # what needs no person waits with the rest
    assert completed(await go_on(spec, paused, approve("c1", "c3"))) == {
        "c1": "mail a",
        "c2": "look",
        "c3": "mail b",
    }
    assert sorted(deeds.done) == ["look", "mail a", "mail b"]


async def test_the_checkpoint_has_every_field() -> None:
    deeds = Deeds()
    said = AssistantMessage(
        [ToolCall("c1", "mail", {"what": "a"})],
        stop_reason="tool_use",
        usage=Usage(input_tokens=120, output_tokens=17),
    )
    spec = AgentSpec("mailer", script("", said, "done"), tools=[deeds.asks("mail", toolset="post")])
    before: list[Message] = [UserMessage("hello"), AssistantMessage("Hi.")]
    began = time.time()
    paused = await run_agent(spec, "go", prefix_messages=before, thread_id="t-1", principal="maria")
    checkpoint = paused_at(paused, "c1")
    assert checkpoint.schema_version == 2
    assert checkpoint.spec_id == "mailer"
    assert checkpoint.iteration == 1
    assert (checkpoint.usage.prompt, checkpoint.usage.completion) == (120, 17)
    assert checkpoint.root_messages == (*before, UserMessage("go"), said) == paused.messages
    assert checkpoint.subagent_sessions == ()
    assert checkpoint.checkpoint_id
    assert (checkpoint.thread_id, checkpoint.run_id) == ("t-1", paused.run_id)
    assert (checkpoint.principal, checkpoint.stored) == ("maria", False)

    (approval,) = checkpoint.pending
    assert approval.tool_call == ToolCall("c1", "mail", {"what": "a"})
    assert approval.digest == call_digest("mail", {"what": "a"})
    assert (approval.kind, approval.agent_path, approval.call_path) == ("approve", ("mailer",), ())
    assert (approval.toolset, approval.principal) == ("post", "maria")
    assert (approval.matched_rule_id, approval.reason, approval.expires_at) == (None, None, None)
    assert began - 1 <= approval.created_at <= time.time() + 1

    done = await run_agent_resume(spec, checkpoint, approve("c1"))
    assert done.thread_id == "t-1"
    assert done.messages[: len(paused.messages)] == paused.messages  # append only
    assert spec.model.requests[0] == [*before, UserMessage("go")]


async def test_a_run_that_needs_nobody_has_no_checkpoint() -> None:
    result = await run_agent(AgentSpec("a", script("done")), "go")
    assert (result.status, result.checkpoint, result.pending_approvals) == ("completed", None, ())


async def test_the_digest_is_of_what_would_run_with_defaults_filled_in() -> None:
    deeds = Deeds()
    paused = await run_agent(mailer(deeds, [call("c1", "mail")], "done"), "go")
    (approval,) = paused.pending_approvals
    assert approval.tool_call.args == {"what": ""}
    assert approval.digest == call_digest("mail", {"what": ""}) == approval.tool_call.digest


async def test_each_pause_is_another_checkpoint() -> None:
    spec = mailer(Deeds())
    first, second = await run_agent(spec, "go"), await run_agent(spec, "go")
    assert first.checkpoint is not None
    assert second.checkpoint is not None
    assert first.checkpoint.checkpoint_id != second.checkpoint.checkpoint_id
    assert first.thread_id != second.thread_id


# Reading checkpoints, old and broken.


async def test_version_1_is_readable() -> None:
    deleted: list[str] = []
    checkpoint = RunCheckpoint.from_json((DATA / "checkpoint_v1.json").read_bytes())
    assert checkpoint.schema_version == 1
    assert checkpoint.usage.prompt == 120
    (approval,) = checkpoint.pending
    assert (approval.id, approval.digest) == ("call_delete", None)
    result = await run_agent_resume(account_spec(deleted), checkpoint, approve("call_delete"))
    assert completed(result) == {"call_delete": "account 12345 is gone"}
    assert deleted == ["12345"]


async def test_version_2_is_readable() -> None:
    deeds = Deeds()
    checkpoint = RunCheckpoint.from_json((DATA / "checkpoint_v2.json").read_text())
    child = AgentSpec("refunds", script("", "refunded"), tools=[deeds.asks("issue_refund")])
    spec = AgentSpec("support", script("", "done"), subagents=[child])
    assert checkpoint.principal == "maria"
    assert checkpoint.pending[0].matched_rule_id == "refunds-need-a-person"
    result = await run_agent_resume(spec, checkpoint, approve("call_a/call_1"))
    assert completed(result) == {"call_a": "refunded"}
    assert deeds.done == ["issue_refund 5"]  # the other was denied before it was written down


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"schema_version": 3}, "schema_version"),
        ({"spec_id": None}, "spec_id"),
        ({"root_messages": [{"role": "nobody"}]}, "root_messages"),
        ({"pending": [{"id": "c1"}]}, "pending"),
        ({"pending": "c1"}, "pending"),
    ],
)
async def test_what_is_no_checkpoint_is_named_by_its_path(change: dict[str, object], path: str) -> None:
    paused = await run_agent(mailer(Deeds()), "go")
    assert paused.checkpoint is not None
    plain = paused.checkpoint.model_dump(mode="json")
    assert RunCheckpoint.from_json(plain) == paused.checkpoint
    with pytest.raises(InvalidMessage) as raised:
        RunCheckpoint.from_json({**plain, **change})
    assert raised.value.path.startswith(path)


async def test_two_pending_approvals_of_one_id_are_no_checkpoint() -> None:
    paused = await run_agent(mailer(Deeds()), "go")
    assert paused.checkpoint is not None
    plain = paused.checkpoint.model_dump(mode="json")
    with pytest.raises(InvalidMessage, match="same id"):
        RunCheckpoint.from_json({**plain, "pending": [plain["pending"][0]] * 2})


# What was seen is what runs.


async def test_an_upgrade_that_changes_the_call_is_asked_again() -> None:
    """The tool has a new parameter: what was approved is not what would run."""
    sent: list[tuple[str, bool]] = []

    @tool(requires_approval=True)
    async def mail(what: str, urgent: bool = True) -> str:
        sent.append((what, urgent))
        return "sent"

    old = mailer(Deeds(), [call("c1", "mail", "a")], "done")
    new = AgentSpec("mailer", old.model, tools=[mail])
    paused = await run_agent(old, "go")
    again = await go_on(new, paused, approve("c1"))
    assert pending_ids(again) == ["c1"]
    assert again.pending_approvals[0].tool_call.args == {"what": "a", "urgent": True}
    assert again.pending_approvals[0].digest != paused.pending_approvals[0].digest
    assert sent == []
    assert (await go_on(new, again, approve("c1"))).status == "completed"
    assert sent == [("a", True)]


async def test_middleware_that_changes_its_mind_makes_the_call_be_asked_again() -> None:
    class Rewrites(Middleware):
        to = "b"

        async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult:
            return BeforeToolCallResult(edited_args={"what": self.to})

    deeds, rewrites = Deeds(), Rewrites()
    model = script([call("c1", "mail", "a")], "done")
    spec = AgentSpec("mailer", model, tools=[deeds.asks("mail")], middleware=[rewrites])
    paused = await run_agent(spec, "go")
    assert paused.pending_approvals[0].tool_call.args == {"what": "b"}  # what would run, not what was said
    rewrites.to = "c"
    again = await go_on(spec, paused, approve("c1"))
    assert again.pending_approvals[0].tool_call.args == {"what": "c"}
    assert deeds.done == []
    assert (await go_on(spec, again, approve("c1"))).status == "completed"
    assert deeds.done == ["mail c"]


@pytest.mark.parametrize("where", ["root_messages", "pending", "both"])
async def test_arguments_altered_while_the_run_was_paused_are_not_run(where: str) -> None:
    deeds = Deeds()
    spec = mailer(deeds, [call("c1", "mail", "five")], "done")
    paused = await run_agent(spec, "go")
    assert paused.checkpoint is not None
    plain = paused.checkpoint.model_dump(mode="json")
    if where in ("root_messages", "both"):
        plain["root_messages"][1]["content"][0]["args"] = {"what": "9999"}
    if where in ("pending", "both"):
        plain["pending"][0]["tool_call"]["args"] = {"what": "9999"}
    again = await run_agent_resume(spec, RunCheckpoint.from_json(plain), approve("c1"))
    assert pending_ids(again) == ["c1"]
    assert deeds.done == []


# Calls that were cut short.


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_call_that_was_cut_short_is_pending_as_one_in_doubt(decision: str) -> None:
    """Approving runs it again, as a second attempt; denying skips it. Nothing is repeated by itself."""
    attempts: list[int] = []
    started, release = asyncio.Event(), asyncio.Event()

    @tool
    async def pay(ctx: ToolContext) -> str:
        attempts.append(ctx.attempt)
        started.set()
        await release.wait()
        return "paid"

    spec = AgentSpec("payer", script([call("c1", "pay")], "done"), tools=[pay])
    agent = Agent.from_spec(spec)
    run = asyncio.create_task(agent.prompt("go"))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    paused = await agent.resume()
    (approval,) = paused.pending_approvals
    assert (approval.id, approval.kind, approval.tool_call.name) == ("c1:escalate:1", "escalate", "pay")
    assert approval.reason is not None
    assert "may or may not have taken effect" in approval.reason
    release.set()
    response = ApprovalResponse(id=approval.id, decision=decision)  # type: ignore[arg-type]
    result = await go_on(spec, paused, [response])
    assert attempts == ([1, 2] if decision == "approve" else [1])
    assert hitl(result, "c1")["decision"] == ("human_retry" if decision == "approve" else "human_skip")
