"""What the tests of pausing share: tools that record their effects, and models that can continue any transcript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from askfirst import AgentResult, AgentSpec, ApprovalResponse, RunCheckpoint, Tool, run_agent_resume, tool
from askfirst.messages import AssistantMessage, Message, ToolCall
from askfirst.models import ScriptedModel
from askfirst.permissions import StaticPermissionPolicy
from kit.transcripts import results


class Deeds:
    """The effects that really happened, in order; makes the tools that record them."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tool(self, name: str, **options: Any) -> Tool:
        """A tool that records a deed, named after the tool and its argument, if it has one."""

        async def body(what: str = "") -> str:
            self.done.append(f"{name} {what}".strip())
            return f"{name} {what}".strip()

        return tool(name=name, **options)(body)

    def asks(self, name: str, **options: Any) -> Tool:
        """A tool that records a deed, and that a person has to approve first."""
        return self.tool(name, requires_approval=True, **options)


def script(*turns: Any) -> ScriptedModel:
    """A model whose next turn depends only on the transcript, so that a new one can continue a thread."""

    def say(messages: list[Message]) -> Any:
        said = sum(isinstance(message, AssistantMessage) for message in messages)
        turn = turns[said]
        return turn(messages) if callable(turn) else turn

    return ScriptedModel([say] * 200)


def call(call_id: str, name: str, what: str = "") -> ToolCall:
    """A call of one of the tools above."""
    return ToolCall(call_id, name, {"what": what} if what else {})


def delegate(call_id: str, name: str, prompt: str = "do it") -> ToolCall:
    """A call of a subagent."""
    return ToolCall(call_id, name, {"prompt": prompt})


def approve(*ids: str) -> list[ApprovalResponse]:
    """An approval of each pending id."""
    return [ApprovalResponse(id=each, decision="approve") for each in ids]


def deny(*ids: str, reason: str | None = None) -> list[ApprovalResponse]:
    """A denial of each pending id."""
    return [ApprovalResponse(id=each, decision="deny", reason=reason) for each in ids]


def edit(id: str, **args: Any) -> list[ApprovalResponse]:
    """An approval with edited arguments."""
    return [ApprovalResponse(id=id, decision="edit", edited_args=args)]


def pending_ids(result: AgentResult) -> list[str]:
    """The pending ids of a paused run; asserts that the result and its checkpoint have the same."""
    assert result.status == "paused", (result.status, result.reason)
    assert result.checkpoint is not None
    assert result.checkpoint.pending == result.pending_approvals
    return [each.id for each in result.pending_approvals]


def paused_at(result: AgentResult, *ids: str) -> RunCheckpoint:
    """The checkpoint of a run that waits for exactly these ids, decoded from JSON as in another process."""
    assert pending_ids(result) == list(ids)
    assert result.checkpoint is not None
    read = RunCheckpoint.from_json(result.checkpoint.to_json())
    assert read == result.checkpoint
    return read


async def go_on(spec: AgentSpec, paused: AgentResult, responses: Sequence[ApprovalResponse]) -> AgentResult:
    """Resume from a checkpoint that was encoded as JSON and decoded again."""
    return await run_agent_resume(spec, paused_at(paused, *pending_ids(paused)), responses)


def completed(result: AgentResult) -> dict[str, str]:
    """The results of a completed run's calls, by call id."""
    assert result.status == "completed", (result.status, result.reason)
    return {call_id: message.text for call_id, message in results(result.messages).items()}


def hitl(result: AgentResult, call_id: str) -> dict[str, Any]:
    """The recorded decision on a call."""
    return (results(result.messages)[call_id].details or {}).get("hitl", {})


TWO = [call("c1", "mail", "a"), call("c2", "mail", "b")]


def mailer(deeds: Deeds, *turns: Any, id: str = "mailer") -> AgentSpec:
    """An agent whose model wants to send two mails, or makes the given turns."""
    return AgentSpec(id, script(*(turns or (TWO, "done"))), tools=[deeds.asks("mail"), deeds.tool("look")])


def account_spec(deleted: list[str]) -> AgentSpec:
    """The seed's agent: it deletes account 12345 if a person approves."""

    @tool
    async def delete_account(account: str) -> str:
        deleted.append(account)
        return f"account {account} is gone"

    policy = StaticPermissionPolicy(
        [{"id": "deletes", "scope": {"tool": "delete_account"}, "effect": "require_approval"}],
        {"allowed": True, "requires_approval": False},
    )
    model = script(ToolCall("call_delete", "delete_account", {"account": "12345"}), "It is deleted.")
    return AgentSpec("support", model, tools=[delete_account], policy=policy)


def refunds(deeds: Deeds, name: str, *turns: Any) -> AgentSpec:
    """A subagent whose model wants to pay, or makes the given turns."""
    model = script(*(turns or ([call("c1", "pay", name)], f"{name} paid")))
    return AgentSpec(name, model, tools=[deeds.asks("pay"), deeds.tool("look")])


def support(deeds: Deeds, *names: str, children: list[AgentSpec] | None = None) -> AgentSpec:
    """An agent that calls all these subagents at once, by their names; the calls' ids are d0, d1 and so on."""
    turn = [delegate(f"d{n}", name) for n, name in enumerate(names)]
    specs = children or [refunds(deeds, name) for name in names]
    return AgentSpec("support", script(turn, "done"), subagents=specs)
