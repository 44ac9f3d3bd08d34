"""Adoption: an agent's request becomes a case, and the answer to the case becomes the answer to the request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from pydantic_core import from_json

from askfirst.clock import seconds
from askfirst.errors import InvalidReview
from askfirst.ids import case_id_of
from askfirst.messages import JsonObject
from askfirst.protocol import iso_duration
from askfirst.requests import (
    Answer,
    Answers,
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlRequest,
    Question,
)
from askfirst.service.case import Case
from askfirst.store import cases as case_store
from askfirst.store.engine import Engine
from askfirst.store.rows import RequestRow, decode_request

_PROMPT_LIMIT = 500
_OTHER = "_other"


def case_prompt(request: HitlRequest) -> str:
    """The prompt of a request's case, in one line. The page shows the request itself instead."""
    text = next(iter(request.payload.sentences), "A question")
    return text if len(text) <= _PROMPT_LIMIT else f"{text[: _PROMPT_LIMIT - 1]}…"


def case_context(request: HitlRequest) -> JsonObject:
    """The context of a request's case: its form or its choices. Arguments are left out: they may be sensitive."""
    return _KINDS[request.payload.kind].context(request.payload)


def answer_of(request: HitlRequest, action: str, data: Mapping[str, Any]) -> Answer:
    """The answer of a case, converted to an answer of its request. Raises `InvalidReview` if it does not fit."""
    return _KINDS[request.payload.kind].answer(request.payload, action, data)


def result_of(request: HitlRequest, answer: Any) -> JsonObject:
    """A request's answer (plain JSON), converted to the result of its case: the inverse of `answer_of`."""
    return _KINDS[request.payload.kind].result(request.payload, answer)


class _Kind(NamedTuple):
    """The conversions of one request kind: from a case's answer, to a case's result, and to a case's context.

    ``default_action`` is what a time-out means: a call that nobody approves in time is denied.
    """

    answer: Callable[[Any, str, Mapping[str, Any]], Answer]
    result: Callable[[Any, Any], JsonObject]
    context: Callable[[Any], JsonObject] = lambda payload: {}
    default_action: str = "skip"


def _result(action: str, **data: Any) -> JsonObject:
    """The result of a case; data that is None is left out."""
    return {"action": action, "data": {name: value for name, value in data.items() if value is not None}}


# Confirm: yes or no.


def _confirm_answer(payload: ConfirmRequest, action: str, data: Mapping[str, Any]) -> bool:
    return action == "confirm"


def _confirm_result(payload: ConfirmRequest, answer: bool) -> JsonObject:
    return _result("confirm" if answer else "cancel")


# Approve: a call.


def _approve_answer(payload: ApproveRequest, action: str, data: Mapping[str, Any]) -> ApproveAnswer:
    """The answer for an agent.

    An edit without changed arguments is a denial with feedback; the agent may try again.
    """
    feedback = data.get("feedback")
    if action == "approve":
        return ApproveAnswer(decision="approve", reason=feedback)
    edits = data.get("edits")
    if action == "edit" and isinstance(edits, Mapping):
        return ApproveAnswer(
            decision="edit", edited_args=dict(cast("Mapping[str, Any]", edits)), reason=feedback
        )
    return ApproveAnswer(decision="deny", reason=feedback)


def _approve_result(payload: ApproveRequest, answer: Mapping[str, Any]) -> JsonObject:
    action = {"approve": "approve", "deny": "reject", "edit": "edit"}[answer["decision"]]
    return _result(action, feedback=answer.get("reason"), edits=answer.get("edited_args"))


# Escalate: what to do now.


def _escalate_answer(payload: EscalateRequest, action: str, data: Mapping[str, Any]) -> EscalateAnswer:
    return EscalateAnswer(
        action=action, reason=data.get("reason"), modified_params=data.get("modified_params")
    )


def _escalate_result(payload: EscalateRequest, answer: Mapping[str, Any]) -> JsonObject:
    params = answer.get("modified_params")
    return _result(answer["action"], reason=answer.get("reason"), modified_params=params)


# Ask: questions.


def _ask_context(payload: AskRequest) -> JsonObject:
    if payload.case_type == "selection":
        question = payload.questions[0]
        items: list[Any] = [
            {"id": option.value, "title": option.label, "description": option.description}
            for option in question.options or ()
        ]
        return {"items": items, "multiple": question.multi_select, "required": question.required}
    fields: list[Any] = []
    for place, question in enumerate(payload.questions, 1):
        fields += _fields(f"q{place}", question)
    return {"form": {"fields": fields}} if fields else {}


def _fields(key: str, question: Question) -> list[JsonObject]:
    label = question.prompt if len(question.prompt) <= 200 else f"{question.prompt[:199]}…"
    field: JsonObject = {"key": key, "label": label, "required": question.required}
    if len(question.prompt) > 200:
        field["hint"] = question.prompt
    if not question.options:
        field["type"] = "textarea"
        if question.multi_select:
            field["hint"] = "One answer on each line."
        return [field]
    field["type"] = "multiselect" if question.multi_select else "select"
    choices: list[Any] = [{"value": option.value, "label": option.label} for option in question.options]
    field["options"] = choices
    own = [option.value for option in question.options if option.allow_input]
    if not own:
        return [field]
    other: JsonObject = {
        "key": f"{key}{_OTHER}",
        "label": "In your own words",
        "type": "text",
        "conditional": {"field": key, "operator": "in", "value": cast("list[Any]", own)},
    }
    if (
        question.multi_select
    ):  # the protocol has no condition on several choices, so the field is always shown
        del other["conditional"]
    return [field, other]


def _ask_answer(payload: AskRequest, action: str, data: Mapping[str, Any]) -> Answers:
    if payload.case_type == "selection":
        question = payload.questions[0]
        chosen = [str(each) for each in data.get("selected", ())]
        if question.multi_select:
            return {question.key: chosen} if chosen or question.required else {}
        if len(chosen) > 1:
            raise InvalidReview({"data.selected": "takes one choice"})
        return {question.key: chosen[0]} if chosen else {}
    answers = {
        question.key: _field_answer(f"q{place}", question, data)
        for place, question in enumerate(payload.questions, 1)
    }
    return {key: answer for key, answer in answers.items() if answer is not None}


def _field_answer(key: str, question: Question, data: Mapping[str, Any]) -> str | list[str] | None:
    given, own = data.get(key), data.get(f"{key}{_OTHER}")
    if question.multi_select:
        if not question.options:
            lines = [line.strip() for line in str(given or "").splitlines()]
            return [line for line in lines if line] or None
        allowing = {option.value for option in question.options if option.allow_input}
        chosen = [str(each) for each in cast("list[Any]", given or [])]
        if own:
            chosen = [each for each in chosen if each not in allowing] + [str(own)]
        return chosen or None
    return str(own) if own else (None if given is None else str(given))


def _ask_result(payload: AskRequest, answers: Mapping[str, str | list[str]]) -> JsonObject:
    if payload.case_type == "selection":
        given = answers.get(payload.questions[0].key, [])
        chosen: list[Any] = list(given) if isinstance(given, list) else [given]
        return {"action": "select", "data": {"selected": [each for each in chosen if each]}}
    data: JsonObject = {}
    for place, question in enumerate(payload.questions, 1):
        if question.key in answers:
            data |= _field_values(f"q{place}", question, answers[question.key])
    return {"action": "submit", "data": data}


def _field_values(key: str, question: Question, answer: str | list[str]) -> JsonObject:
    """An answer to a question as the values of the question's form fields."""
    if not question.options:
        return {key: "\n".join(answer) if isinstance(answer, list) else answer}
    offered = {option.value for option in question.options}
    allowing = [option.value for option in question.options if option.allow_input]
    given = answer if isinstance(answer, list) else [answer]
    own = [each for each in given if each and each not in offered]
    chosen: list[Any] = [each for each in given if each in offered]
    if own and allowing and allowing[0] not in chosen:
        chosen.append(allowing[0])
    said: JsonObject = {}
    if chosen:
        said[key] = chosen if question.multi_select else chosen[0]
    if own:
        said[f"{key}{_OTHER}"] = ", ".join(own)
    return said


_KINDS: Mapping[str, _Kind] = {
    "confirm": _Kind(_confirm_answer, _confirm_result),
    "approve": _Kind(_approve_answer, _approve_result, default_action="reject"),
    "ask": _Kind(_ask_answer, _ask_result, _ask_context),
    "escalate": _Kind(_escalate_answer, _escalate_result),
}


NO_LIMIT_SECONDS = 3650 * 86_400
"""How long a case stays open if its request has no time-out: the protocol requires an expiry.

People do not see this expiry: see `Case.never_expires`.
"""


def adopted_case(row: RequestRow, rounds: Rounds | None = None) -> Case:
    """A new case for a request; ``rounds`` are the earlier cases of the same thread."""
    request = decode_request(row)
    created_at, expires_at = seconds(row.created_at), seconds(row.expires_at)
    most = created_at + NO_LIMIT_SECONDS
    timeout = min(request.timeout_seconds or NO_LIMIT_SECONDS, NO_LIMIT_SECONDS)
    return Case(
        case_id=case_id_of(row.thread_id, row.question_id, row.round),
        type=request.payload.case_type,
        status="pending",
        version=1,
        prompt=case_prompt(request),
        created_at=created_at,
        expires_at=most if expires_at is None else min(expires_at, most),
        timeout=iso_duration(max(1, math.ceil(timeout))),  # the protocol counts whole seconds
        context=case_context(request),
        default_action=_KINDS[request.payload.kind].default_action,
        request=request,
        thread_id=row.thread_id,
        previous_case_id=None if rounds is None else rounds.previous(row, request),
    )


class Rounds:
    """The cases of a thread's approvals that have no next round yet, read once for many requests of the thread."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, str]] = {}
        """The last round of each call, by question id, and the id of its case."""
        self._sent_back: dict[str, dict[str, int]] = {}
        """By tool: the cases for which a person asked for another try, and when each ended."""

    @classmethod
    async def of(cls, engine: Engine, thread_id: str) -> Rounds:
        """Read the cases of a thread's calls from the store."""
        known = cls()
        for each in await engine.read(partial(case_store.rounds, thread_id)):
            facts = from_json(each.facts)
            if "next_case_id" in facts or each.question_id is None or each.round is None:
                continue
            known.add(each.question_id, each.round, each.case_id)
            if _was_sent_back(facts):
                asked = partial(case_store.request, thread_id, each.question_id, each.round)
                request = await engine.read(asked)
                tool = None if request is None else _tool_of(decode_request(request))
                if tool is not None:
                    known._sent_back.setdefault(tool, {})[each.case_id] = each.ended_at or 0
        return known

    def add(self, question_id: str, round: int, case_id: str) -> None:
        """Add a case that has no next round."""
        self._last[question_id] = max(self._last.get(question_id, (-1, "")), (round, case_id))

    def previous(self, row: RequestRow, request: HitlRequest) -> str | None:
        """The case of the previous round of a request; None if there is none.

        It is the last round of the same call, or the latest case of the same tool for which a person asked for
        another try.
        """
        last = self._last.get(row.question_id)
        if last is not None and last[0] < row.round:
            return last[1]
        sent_back = self._sent_back.get(_tool_of(request) or "", {})
        return max(sent_back, key=lambda each: (sent_back[each], each), default=None)

    def remove(self, case_id: str) -> None:
        """Remove a case, because it has a next round now."""
        self._last = {question: last for question, last in self._last.items() if last[1] != case_id}
        for cases in self._sent_back.values():
            cases.pop(case_id, None)


def _was_sent_back(facts: Mapping[str, Any]) -> bool:
    """Whether a person asked for another try: an edit with feedback instead of changed arguments."""
    result: Mapping[str, Any] = facts.get("result") or {}
    return result.get("action") == "edit" and "edits" not in (result.get("data") or {})


def _tool_of(request: HitlRequest) -> str | None:
    call = request.payload.gated_call
    return None if call is None else call.tool_name
