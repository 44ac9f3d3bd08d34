"""An agent with two subagents that both ask: one pause shows both requests, which may be answered in any order."""

from __future__ import annotations

import asyncio

from askfirst import AgentResult, AgentSpec, ApprovalResponse, run_agent, run_agent_resume, tool
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.permissions import StaticPermissionPolicy


@tool
def issue_refund(order: str, cents: int) -> str:
    """Pay a customer back."""
    print(f"  (issue_refund runs: {cents / 100:.2f} EUR for {order})")
    return f"{cents / 100:.2f} EUR were sent for {order}"


@tool
def send_mail(to: str, text: str) -> str:
    """Write to a customer."""
    print(f"  (send_mail runs: {text!r} to {to})")
    return f"mail sent to {to}"


refunds = AgentSpec(
    "refunds",
    ScriptedModel(
        [
            ToolCall("call_1", "issue_refund", {"order": "A-1042", "cents": 4900}),
            lambda messages: f"Done: {messages[-1].text}.",
        ]
    ),
    [issue_refund],
    description="Pays customers back.",
)
letters = AgentSpec(
    "letters",
    ScriptedModel(
        [
            ToolCall("call_1", "send_mail", {"to": "ada@example.com", "text": "We are sorry."}),
            lambda messages: f"Done: {messages[-1].text}.",
        ]
    ),
    [send_mail],
    description="Writes to customers.",
)
support = AgentSpec(
    "support",
    ScriptedModel(
        [
            [
                ToolCall("call_a", "refunds", {"prompt": "Pay Ada back for order A-1042."}),
                ToolCall("call_b", "letters", {"prompt": "Tell Ada that we are sorry."}),
            ],
            lambda messages: " ".join(message.text for message in messages if message.role == "tool"),
        ]
    ),
    subagents=[refunds, letters],
    policy=StaticPermissionPolicy(
        [
            {"id": "money", "scope": {"tool": "issue_refund"}, "effect": "require_approval"},
            {"id": "mail", "scope": {"tool": "send_mail"}, "effect": "require_approval"},
        ],
        default={"allowed": True, "requires_approval": False},
    ),
)


def show(result: AgentResult) -> None:
    """Print the run's status, and its pending approvals with the path to the agent that asks."""
    print(f"{result.status}: {result.text or result.reason}")
    for pending in result.pending_approvals:
        path = " > ".join([*pending.agent_path, pending.tool_call.name])
        print(f"  {pending.id}: {path} {pending.tool_call.args}")


async def main() -> None:
    result = await run_agent(support, "My kettle leaks. I want my money back.", thread_id="ticket-7")
    show(result)
    while result.checkpoint is not None:
        last = result.pending_approvals[-1]  # one at a time, the second first: the other stays pending
        print(f"a person approves {last.id}")
        response = ApprovalResponse(id=last.id, decision="approve", digest=last.digest)
        result = await run_agent_resume(support, result.checkpoint, [response])
        show(result)


if __name__ == "__main__":
    asyncio.run(main())
