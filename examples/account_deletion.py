"""A run that pauses as a portable value: no account is deleted before a person approves. Type approve or deny WHY."""

from __future__ import annotations

import asyncio

from askfirst import (
    AgentSpec,
    ApprovalResponse,
    PendingApproval,
    RunCheckpoint,
    run_agent,
    run_agent_resume,
    tool,
)
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.permissions import StaticPermissionPolicy


@tool(effect="none")
def find_account(account_id: str) -> str:
    """Look an account up."""
    return f"{account_id} belongs to Ada, 12 orders"


@tool
def delete_account(account_id: str) -> str:
    """Delete an account for good."""
    print(f"  (deleting {account_id})")
    return f"account {account_id} is gone"


policy = StaticPermissionPolicy(
    [{"id": "deletions", "scope": {"tool": "delete_*"}, "effect": "require_approval"}],
    default={"allowed": True, "requires_approval": False},
)
model = ScriptedModel(
    [
        ToolCall("call_find", "find_account", {"account_id": "12345"}),
        ToolCall("call_delete", "delete_account", {"account_id": "12345"}),
        lambda messages: f"The result was: {messages[-1].text}",
    ]
)
spec = AgentSpec("support", model, [find_account, delete_account], policy=policy)


def ask(pending: PendingApproval) -> list[ApprovalResponse]:
    """The person's decision, as a list with one response; an empty list if they did not decide."""
    try:
        word, _, rest = input("approve or deny WHY > ").strip().partition(" ")
    except EOFError:
        print("nobody is at the keyboard")
        return []
    if word not in ("approve", "deny"):
        return []
    return [ApprovalResponse(id=pending.id, decision=word, reason=rest or None, digest=pending.digest)]


async def main() -> None:
    result = await run_agent(spec, "Delete account 12345")
    for pending in result.pending_approvals:
        print(f"{result.status}: {pending.id} wants {pending.tool_call.name} {pending.tool_call.args}")
        print(f"because {pending.reason}")
    if result.checkpoint is None:
        return
    kept = result.checkpoint.to_json()  # a text: store it anywhere, the process may end here

    responses = [answer for pending in result.pending_approvals for answer in ask(pending)]
    result = await run_agent_resume(spec, RunCheckpoint.from_json(kept), responses)
    print(f"{result.status}: {result.text or result.reason}")


if __name__ == "__main__":
    asyncio.run(main())
