"""Three middlewares: a guard that denies calls, a redaction that edits results, an audit that prints results."""

from __future__ import annotations

import asyncio
import re

from askfirst import Agent, AgentEvent, BeforeToolCallResult, Middleware, ToolCallContext, tool
from askfirst.messages import TextPart, ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel


@tool(effect="none")
def read_customer(name: str) -> str:
    """Read a customer's record."""
    return f"{name}, card 4000 0000 0000 1234"


@tool
def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


class OnlyOurDomain(Middleware):
    """Denies mail to other domains; the model is told why and can do something else."""

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
        if ctx.tool.name == "send_mail" and not str(ctx.tool_call.args["to"]).endswith("@example.com"):
            return BeforeToolCallResult(block=True, reason="Mail goes to addresses at example.com only.")
        return None


class HideCards(Middleware):
    """Keeps card numbers out of the transcript, and so from the model."""

    async def after_tool_call(self, ctx: ToolCallContext) -> ToolResultMessage | None:
        if ctx.result is None:
            return None
        hidden = re.sub(r"\b(?:\d{4} ){3}(\d{4})\b", r"**** \1", ctx.result.text)
        return ctx.result.model_copy(update={"content": (TextPart(hidden),)})


class Audit(Middleware):
    """Prints the result of every call."""

    async def on_event(self, event: AgentEvent) -> None:
        if event.type == "message_ended" and isinstance(event.message, ToolResultMessage):
            print(f"{event.message.tool_name}: {event.message.text}")


async def main() -> None:
    model = ScriptedModel(
        [
            ToolCall("c1", "read_customer", {"name": "Ada Ngo"}),
            ToolCall("c2", "send_mail", {"to": "ada@elsewhere.example", "text": "Hello"}),
            ToolCall("c3", "send_mail", {"to": "desk@example.com", "text": "Please call Ada."}),
            "I could not write to Ada herself, so the desk will call her.",
        ]
    )
    agent = Agent(
        model=model, tools=[read_customer, send_mail], middleware=[Audit(), OnlyOurDomain(), HideCards()]
    )
    result = await agent.prompt("Tell Ada Ngo that her parcel is late.")
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
