"""An agent's request as a case, and the answer to the case as the answer to the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from assent.errors import InvalidReview
from assent.messages import JsonObject
from assent.requests import (
    Answer,
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlRequest,
    Question,
)

_PROMPT = 500
_OTHER = "_other"


def case_type(request: HitlRequest) -> str:
    """Which of the protocol's types shows a request."""
    payload = request.payload
    if isinstance(payload, ApproveRequest):
        return "approval"
    if isinstance(payload, ConfirmRequest):
        return "confirmation"
    if isinstance(payload, EscalateRequest):
        return "escalation"
    return "selection" if _is_selection(payload) else "input"


def case_prompt(request: HitlRequest) -> str:
    """What is asked, in a line; the page shows the request itself."""
    payload = request.payload
    if isinstance(payload, ApproveRequest):
        text = f"May {payload.tool_name} run?"
    elif isinstance(payload, AskRequest):
        text = payload.questions[0].prompt if payload.questions else "A question"
    else:
        text = payload.prompt
    return text if len(text) <= _PROMPT else f"{text[: _PROMPT - 1]}…"


def case_context(request: HitlRequest) -> JsonObject:
    """The form or the choices that a request becomes; no arguments, for those may be sensitive."""
    payload = request.payload
    if not isinstance(payload, AskRequest):
        return {}
    if _is_selection(payload):
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


def _is_selection(payload: AskRequest) -> bool:
    """One question with options, none of which brings a text of one's own."""
    if len(payload.questions) != 1:
        return False
    options = payload.questions[0].options
    return bool(options) and not any(option.allow_input for option in options or ())


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
    if question.multi_select:  # the protocol has no condition on a list of choices, so it is always there
        del other["conditional"]
    return [field, other]


def answer_of(request: HitlRequest, action: str, data: Mapping[str, Any]) -> Answer:
    """What the asker gets; raises `InvalidReview` for what is no answer to it."""
    payload = request.payload
    if isinstance(payload, ApproveRequest):
        return _approve_answer(action, data)
    if isinstance(payload, ConfirmRequest):
        return action == "confirm"
    if isinstance(payload, EscalateRequest):
        return EscalateAnswer(
            action=action, reason=data.get("reason"), modified_params=data.get("modified_params")
        )
    if _is_selection(payload):
        question = payload.questions[0]
        chosen = [str(each) for each in data.get("selected", ())]
        if question.multi_select:
            return {question.key: chosen} if chosen or question.required else {}
        if len(chosen) > 1:
            raise InvalidReview({"data.selected": "takes one choice"})
        return {question.key: chosen[0]} if chosen else {}
    answers = {
        question.key: _answer(f"q{place}", question, data)
        for place, question in enumerate(payload.questions, 1)
    }
    return {key: answer for key, answer in answers.items() if answer is not None}


def _approve_answer(action: str, data: Mapping[str, Any]) -> ApproveAnswer:
    """An edit without edits is a denial that says what to do better: the agent tries again."""
    feedback = data.get("feedback")
    if action == "approve":
        return ApproveAnswer(decision="approve", reason=feedback)
    edits = data.get("edits")
    if action == "edit" and isinstance(edits, Mapping):
        return ApproveAnswer(
            decision="edit", edited_args=dict(cast("Mapping[str, Any]", edits)), reason=feedback
        )
    return ApproveAnswer(decision="deny", reason=feedback)


def _answer(key: str, question: Question, data: Mapping[str, Any]) -> str | list[str] | None:
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


def result_of(request: HitlRequest, answer: Any) -> JsonObject:
    """An answer that was given elsewhere, as plain JSON, in the words of the case: `answer_of` the other way."""
    payload = request.payload
    if isinstance(payload, ConfirmRequest):
        return {"action": "confirm" if answer else "cancel", "data": {}}
    if isinstance(payload, AskRequest):
        return _ask_result(payload, answer)
    if isinstance(payload, ApproveRequest):
        action = {"approve": "approve", "deny": "reject", "edit": "edit"}[answer["decision"]]
        data = {"feedback": answer.get("reason"), "edits": answer.get("edited_args")}
    else:
        action = answer["action"]
        data = {"reason": answer.get("reason"), "modified_params": answer.get("modified_params")}
    return {"action": action, "data": {name: value for name, value in data.items() if value is not None}}


def _ask_result(payload: AskRequest, answers: Mapping[str, str | list[str]]) -> JsonObject:
    if _is_selection(payload):
        given = answers.get(payload.questions[0].key, [])
        chosen: list[Any] = list(given) if isinstance(given, list) else [given]
        return {"action": "select", "data": {"selected": [each for each in chosen if each]}}
    data: JsonObject = {}
    for place, question in enumerate(payload.questions, 1):
        if question.key in answers:
            data |= _given(f"q{place}", question, answers[question.key])
    return {"action": "submit", "data": data}


def _given(key: str, question: Question, answer: str | list[str]) -> JsonObject:
    """An answer as the fields of its question."""
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
