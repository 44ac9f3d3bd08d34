"""``ask_user``: a tool with which the model asks a person."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from askfirst.agent.context import safe_point
from askfirst.agent.tools import Tool, ToolResult
from askfirst.channels import HitlChannel
from askfirst.errors import HitlCancelled, HitlTimedOut
from askfirst.requests import Option, Question

_DESCRIPTION = """Ask the user one or more questions and wait for the answers.

Use it when you need a decision, a choice between a few possibilities or a fact that only the user knows. Give \
options where the answer is one of a few; add one with allow_input where the user may want something else. \
Ask everything that you need at once."""


class AskUserParams(BaseModel):
    """What the model passes to ``ask_user``."""

    model_config = ConfigDict(extra="forbid")
    questions: list[Question] = Field(min_length=1)


def ask_user_tool(channel: HitlChannel) -> Tool:
    """A tool ``ask_user`` that puts the model's questions to a person through the channel.

    The result's ``details["hitl"]`` has the ``outcome`` (``answered``, ``cancelled``, ``timed_out``), the
    ``answers`` and the ``reason``. Without answers, the outcome is also the ``decision``, as for a call that nobody
    approved.
    """

    async def ask_user(args: BaseModel) -> ToolResult:
        if not isinstance(args, AskUserParams):
            raise TypeError(f"ask_user takes AskUserParams, not {type(args).__name__}")
        try:
            with safe_point():
                answers = await channel.ask([_question(question) for question in args.questions])
        except HitlTimedOut as signal:
            return _unanswered("timed_out", f"The user did not answer: {signal}.", str(signal))
        except HitlCancelled as signal:
            return _unanswered("cancelled", f"The user did not answer: {signal.reason}.", signal.reason)
        said = json.dumps(answers, ensure_ascii=False)
        return ToolResult(f"The user answered: {said}", {"hitl": {"outcome": "answered", "answers": answers}})

    return Tool(
        name="ask_user",
        parameters=AskUserParams,
        function=ask_user,
        description=_DESCRIPTION,
        effect="none",
        execution_mode="sequential",
    )


def _question(question: Question) -> Question:
    """The question, with an empty list of options replaced by None, so that it takes free text."""
    options: list[Option] | None = question.options or None
    return question.model_copy(update={"options": options})


def _unanswered(outcome: str, said: str, reason: str) -> ToolResult:
    details: dict[str, Any] = {"hitl": {"outcome": outcome, "decision": outcome, "reason": reason}}
    return ToolResult(said, details, is_error=True)
