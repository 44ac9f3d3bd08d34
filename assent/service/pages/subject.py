"""What a case is about: the call that would run, why a person is asked, and what others wrote about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from assent.messages import JsonObject
from assent.requests import ApproveRequest, AskRequest, ConfirmRequest, EscalateRequest
from assent.service.case import Case
from assent.service.pages.passage import Passage, passage
from assent.service.pages.shown import Shown, shown, shown_all

_USED = {"selection": ("items", "multiple", "required"), "confirmation": ("items_to_confirm",)}
_OURS = {"matched_rule_id": "Rule", "agent_path": "Agent", "principal": "On behalf of"}


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
class Why:
    """Why a person is asked, as the rules around the agent have it: no words of the agent's own."""

    reason: Passage | None
    facts: list[Shown]


@dataclass(frozen=True, slots=True)
class Words:
    """What the asking side wrote: a sentence, perhaps another, and facts by name; ``author`` says whose it is."""

    author: Literal["agent", "side", "service"]
    prompt: Passage | None
    message: Passage | None
    facts: list[Shown]
    questions: list[Passage] = field(default_factory=list[Passage])
    """What was to be filled in or chosen from, where the page has no fields for it any more."""

    def __bool__(self) -> bool:
        return bool(self.prompt or self.message or self.facts or self.questions)


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


def why_of(case: Case) -> Why | None:
    """Why the call is asked about, which rule wants that, and for which agent and whom; None if nothing is said."""
    payload = None if case.request is None else case.request.payload
    if not isinstance(payload, ApproveRequest):
        return None
    told = _told(payload)
    if not told:
        return None
    reason = told.pop("reason", None)
    return Why(_passage(reason), [shown(_OURS[name], text) for name, text in told.items()])


def _told(payload: ApproveRequest) -> dict[str, str]:
    """What the gate tells of a call, each as text."""
    told: dict[str, str] = {}
    for name, value in (payload.details or {}).items():
        if name == "agent_path" and isinstance(value, list) and all(isinstance(each, str) for each in value):
            told[name] = " / ".join(cast("list[str]", value))
        elif name in ("reason", "matched_rule_id", "principal") and isinstance(value, str):
            told[name] = value
    return {name: text for name, text in told.items() if text}


def words_of(case: Case) -> Words:
    """Everything that the agent's side or the calling service wrote, but for the choices and fields to fill in."""
    if case.request is None:
        used = ("form", *_USED.get(case.type, ()))
        facts = {name: value for name, value in case.context.items() if name not in used}
        return Words("service", _passage(case.prompt), _passage(case.message), shown_all(facts))
    payload = case.request.payload
    if isinstance(payload, AskRequest):
        prompt = payload.questions[0].prompt if case.type == "selection" else None
        return Words("agent", _passage(prompt), None, [])
    details: Mapping[str, Any] = payload.details or {}
    if isinstance(payload, ConfirmRequest):
        return Words("side", _passage(payload.prompt), None, shown_all(details))
    if isinstance(payload, EscalateRequest):
        seen = () if call_of(case) is None else ("tool_name", "args")
        facts = {name: value for name, value in details.items() if name not in seen}
        return Words("side", _passage(payload.prompt), None, shown_all(facts))
    told = _told(payload)
    rest = {name: value for name, value in details.items() if name not in told}
    return Words("side", None, None, shown_all(rest))


def _passage(text: str | None) -> Passage | None:
    return passage(text) if text else None
