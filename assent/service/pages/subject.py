"""What a case is about: the call that would run, and what others wrote about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from assent.messages import JsonObject
from assent.requests import ApproveRequest, AskRequest, ConfirmRequest, EscalateRequest
from assent.service.case import Case
from assent.service.pages.passage import Passage, passage
from assent.service.pages.shown import Shown, shown_all

_USED = {"selection": ("items", "multiple", "required"), "confirmation": ("items_to_confirm",)}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool and every argument, as they are or were to run."""

    tool_name: str
    args: JsonObject
    digest: str | None = None

    @property
    def title(self) -> Passage:
        """The tool's name."""
        return passage(self.tool_name)

    @property
    def shown(self) -> list[Shown]:
        """The arguments."""
        return shown_all(self.args)


@dataclass(frozen=True, slots=True)
class Words:
    """What the asking side wrote: a sentence, perhaps another, and facts by name."""

    prompt: Passage | None
    message: Passage | None
    facts: list[Shown]

    def __bool__(self) -> bool:
        return self.prompt is not None or self.message is not None or bool(self.facts)


def call_of(case: Case) -> Call | None:
    """The call that waits for the answer, or whose end nobody knows; None where there is none."""
    payload = None if case.request is None else case.request.payload
    if isinstance(payload, ApproveRequest):
        return Call(payload.tool_name, payload.args, payload.digest)
    if isinstance(payload, EscalateRequest):
        details: Mapping[str, Any] = payload.details or {}
        name, args = details.get("tool_name"), details.get("args")
        if isinstance(name, str) and isinstance(args, dict):
            return Call(name, cast("JsonObject", args))
    return None


def words_of(case: Case) -> Words:
    """Everything that the agent or the calling service wrote, apart from the choices and fields to fill in."""
    if case.request is None:
        used = ("form", *_USED.get(case.type, ()))
        facts = {name: value for name, value in case.context.items() if name not in used}
        return Words(_passage(case.prompt), _passage(case.message), shown_all(facts))
    payload = case.request.payload
    if isinstance(payload, AskRequest):
        prompt = payload.questions[0].prompt if case.type == "selection" else None
        return Words(_passage(prompt), None, [])
    details: Mapping[str, Any] = payload.details or {}
    if isinstance(payload, ConfirmRequest):
        return Words(_passage(payload.prompt), None, shown_all(details))
    if isinstance(payload, EscalateRequest):
        told = () if call_of(case) is None else ("tool_name", "args")
        facts = {name: value for name, value in details.items() if name not in told}
        return Words(_passage(payload.prompt), None, shown_all(facts))
    return Words(None, None, shown_all(details))


def _passage(text: str | None) -> Passage | None:
    return passage(text) if text else None
