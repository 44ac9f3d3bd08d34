"""What the three processes share: the store of threads, and the agent."""

from __future__ import annotations

from collections.abc import Sequence

from askfirst import Agent, tool
from askfirst.checkpointer.base import Checkpointer
from askfirst.messages import Message, ToolCall
from askfirst.models import ScriptedModel

STORE = "sqlite:///cross_process.db"
THREAD = "ticket-1042"


@tool(requires_approval=True)
def refund(order: str, cents: int) -> str:
    """Pay a customer back."""
    print(f"refund runs: {cents / 100:.2f} EUR for {order}")
    return f"{cents / 100:.2f} EUR were sent."


def say(messages: Sequence[Message]) -> str | ToolCall:
    """The scripted model's next turn: a call after the customer's message, else the call's result."""
    last = messages[-1]
    if last.role == "user":
        return ToolCall("call-1", "refund", {"order": "A-1042", "cents": 4900})
    return f"Dear customer: {last.text}"


def make_agent(checkpointer: Checkpointer) -> Agent:
    """The same agent in every process, on the same thread."""
    model = ScriptedModel([say, say])
    return Agent(id="desk", model=model, tools=[refund], checkpointer=checkpointer, thread_id=THREAD)
