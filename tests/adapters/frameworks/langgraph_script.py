"""A scripted chat model of LangChain, and a tool that counts its effects."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool


class Model(BaseChatModel):
    """Says one message after another; which comes next is told by the results so far."""

    turns: list[Any]

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        place = len([it for it in messages if isinstance(it, AIMessage)])
        return ChatResult(generations=[ChatGeneration(message=self.turns[place])])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def calls(*given: tuple[str, dict[str, Any]], name: str = "charge") -> AIMessage:
    """A message that makes these calls of a tool."""
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": args, "id": call_id, "type": "tool_call"} for call_id, args in given
        ],
    )


class Desk:
    """A tool that counts its effects."""

    def __init__(self) -> None:
        self.charged: list[int] = []

        @tool
        def charge(cents: int, currency: str = "EUR") -> str:
            """Charge the customer."""
            self.charged.append(cents)
            return f"charged {cents} {currency}"

        self.tool = charge


def results(state: Any) -> list[tuple[str, str]]:
    """What the model was told of its calls."""
    return [(it.status, it.content) for it in state["messages"] if isinstance(it, ToolMessage)]
