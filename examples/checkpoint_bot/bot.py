"""What the bot's processes share: the store of checkpoints, the agent, and how buttons are posted."""

from __future__ import annotations

from collections.abc import Sequence

from askfirst import AgentResult, AgentSpec, tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.messages import Message, ToolCall
from askfirst.models import ScriptedModel
from askfirst.permissions import StaticPermissionPolicy

CHAT = "slack-thread-123"


@tool
def cancel_order(order: str) -> str:
    """Cancel an order."""
    print(f"(cancel_order runs: {order})")
    return f"{order} is cancelled."


@tool
def refund(order: str, cents: int) -> str:
    """Pay a customer back."""
    print(f"(refund runs: {cents / 100:.2f} EUR for {order})")
    return f"{cents / 100:.2f} EUR were sent."


def say(messages: Sequence[Message]) -> str | list[ToolCall]:
    """The scripted model's next turn: two calls after the customer's message, else the calls' results."""
    if messages[-1].role == "user":
        return [
            ToolCall("call_cancel", "cancel_order", {"order": "A-1042"}),
            ToolCall("call_refund", "refund", {"order": "A-1042", "cents": 4900}),
        ]
    return " ".join(message.text for message in messages if message.role == "tool")


def make_spec() -> AgentSpec:
    """The same agent in every process."""
    policy = StaticPermissionPolicy([{"id": "orders", "scope": {"tool": "*"}, "effect": "require_approval"}])
    return AgentSpec("support", ScriptedModel([say, say]), [cancel_order, refund], policy=policy)


def open_memory() -> SQLiteCheckpointer:
    """The store, a file in the working directory."""
    return SQLiteCheckpointer("checkpoint_bot.db")


def post(result: AgentResult) -> None:
    """Write into the chat: the bot's answer, or a button for each pending call."""
    if result.checkpoint is None:
        print(f"bot: {result.text}")
        return
    for pending in result.pending_approvals:
        print(f"bot: may I {pending.tool_call.name} {pending.tool_call.args}?")
        print(f"     press.py {result.checkpoint.checkpoint_id} {pending.id} approve|deny")
