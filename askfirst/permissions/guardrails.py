"""Guardrails: functions that look at a call, or at a model's answer, and may only make things stricter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from askfirst.display import higher
from askfirst.messages import AssistantMessage
from askfirst.permissions.decision import Because, Decision, PendingAction, Verdict
from askfirst.permissions.evaluate import DEFAULT_TIMEOUT, Failed, as_decision, call_each

Objection = Decision | None
ActionCheck = Callable[[PendingAction], Objection | Awaitable[Objection]]
AnswerCheck = Callable[[AssistantMessage], Objection | Awaitable[Objection]]

_STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class ActionGuardrail:
    """A guardrail on calls; see `action_guardrail`."""

    check: ActionCheck


@dataclass(frozen=True, slots=True)
class AnswerGuardrail:
    """A guardrail on what the model says; see `answer_guardrail`."""

    check: AnswerCheck


Guardrail = ActionGuardrail | AnswerGuardrail | ActionCheck
"""A bare function is a guardrail on calls."""


def action_guardrail(check: ActionCheck) -> ActionGuardrail:
    """Make a guardrail of a function, sync or async, of a `PendingAction` that returns a `Decision` or None."""
    return ActionGuardrail(check)


def answer_guardrail(check: AnswerCheck) -> AnswerGuardrail:
    """Make a guardrail of a function, sync or async, of an `AssistantMessage` that returns a `Decision` or
    None."""
    return AnswerGuardrail(check)


async def tighten(
    decisions: Sequence[Decision],
    actions: Sequence[PendingAction],
    guardrails: Sequence[Guardrail],
    timeout: float | None = DEFAULT_TIMEOUT,
) -> list[Decision]:
    """The decisions, each replaced by a guardrail's decision about its call if that is stricter.

    None and an allow change nothing. Calls that are denied already are not checked. A guardrail that raises,
    takes longer than ``timeout`` seconds or gives no decision denies (fail closed).
    """
    result = list(decisions)
    for guardrail in guardrails:
        if isinstance(guardrail, AnswerGuardrail):
            continue
        check = guardrail.check if isinstance(guardrail, ActionGuardrail) else guardrail
        open_places = [place for place, each in enumerate(result) if each.verdict != "deny"]
        objections = await _objections(check, [actions[place] for place in open_places], timeout)
        for place, objection in zip(open_places, objections, strict=True):
            result[place] = stricter(result[place], objection)
    return result


async def judge_answer(
    message: AssistantMessage,
    guardrails: Sequence[Guardrail],
    timeout: float | None = DEFAULT_TIMEOUT,
) -> Decision | None:
    """The strictest objection of the guardrails to a model's answer, or None if there is none.

    They fail closed as in `tighten`.
    """
    result = Decision.allow()
    for guardrail in guardrails:
        if isinstance(guardrail, AnswerGuardrail) and result.verdict != "deny":
            [objection] = await _objections(guardrail.check, [message], timeout)
            result = stricter(result, objection)
    return None if result.verdict == "allow" else result


async def _objections(
    check: Callable[[Any], Any], given: Sequence[Any], timeout: float | None
) -> list[Objection]:
    if not given:
        return []
    what = f"the guardrail {getattr(check, '__name__', type(check).__name__)}"
    answers = await call_each(what, check, given, timeout)
    return [_objection(what, answer) for answer in answers]


def _objection(what: str, answer: Any) -> Objection:
    decision = None if answer is None else as_decision(what, answer)
    return Decision.deny(decision.reason) if isinstance(decision, Failed) else decision


def stricter(first: Decision, second: Objection) -> Decision:
    """The stricter of two decisions; the first, if they are equally strict.

    Where both ask a person, all reasons are kept, the higher risk, and the longer hold.
    """
    if second is not None and first.verdict == second.verdict == "ask":
        because = Because(second.reason, second.matched_rule_id, second.reason_in)
        held = [it.hold_seconds for it in (first, second) if it.hold_seconds is not None]
        return replace(
            first,
            also=(*first.also, because, *second.also),
            risk=higher(first.risk, second.risk),
            hold_seconds=max(held, default=None),
        )
    if second is None or _STRICTNESS[second.verdict] <= _STRICTNESS[first.verdict]:
        return first
    return second
