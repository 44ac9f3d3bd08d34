"""The payload with which a front end answers a request: its JSON Schema, and the answer in it.

The names are those that AG-UI recommends (``approved``, ``editedArgs``). Other fields of a payload are not read, so a
payload cannot claim who answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from askfirst.errors import HitlInvalidAnswer
from askfirst.messages import JsonObject
from askfirst.requests import AskRequest, ConfirmRequest, EscalateRequest, HitlPayload, HitlRequest, Question

_TEXT: JsonObject = {"type": "string"}
_YES_OR_NO: JsonObject = {"type": "boolean"}


def response_schema(request: HitlRequest) -> JsonObject:
    """The JSON Schema of a payload that answers a request. ``editedArgs`` is in it if arguments can be edited."""
    return _RESPONSES[request.payload.kind].schema(request.payload)


def answer_in(request: HitlRequest, payload: Any) -> Any:
    """The answer in a payload, as plain JSON. Raises `HitlInvalidAnswer` if the payload has no answer.

    The caller still has to check whether the answer fits the request: see `askfirst.requests.fit_answer`.
    """
    try:
        return _RESPONSES[request.payload.kind].answer(request.payload, payload)
    except _NoAnswer as error:
        raise HitlInvalidAnswer(request.question_id, [str(error)]) from None


class _NoAnswer(Exception):
    """The fault of a payload without an answer."""


class _Response(NamedTuple):
    """How one kind of request is answered: its schema, and the answer in a payload."""

    schema: Callable[[Any], JsonObject]
    answer: Callable[[Any, Any], Any]


def _approval_schema(asked: HitlPayload) -> JsonObject:
    return _object({"approved": _YES_OR_NO, "reason": _TEXT, **_edits(asked)}, ["approved"])


def _approval(asked: HitlPayload, payload: Any) -> JsonObject:
    given = _fields(payload)
    approved, edited = _yes_or_no(given), given.get("editedArgs")
    if edited is None:
        return {"decision": "approve" if approved else "deny", **_reason(given)}
    if not approved:
        raise _NoAnswer("editedArgs go with an approval")
    if asked.edit_schema is None:
        raise _NoAnswer("the arguments of this call cannot be edited")
    return {"decision": "edit", "edited_args": edited, **_reason(given)}


def _confirmation_schema(asked: ConfirmRequest) -> JsonObject:
    return _YES_OR_NO


def _confirmation(asked: ConfirmRequest, payload: Any) -> bool:
    return payload if isinstance(payload, bool) else _yes_or_no(_fields(payload))


def _form_schema(asked: AskRequest) -> JsonObject:
    fields: JsonObject = {it.key: _question(it) for it in asked.questions}
    return _object(fields, [it.key for it in asked.questions if it.required])


def _form(asked: AskRequest, payload: Any) -> JsonObject:
    return dict(_fields(payload))


def _choice_schema(asked: EscalateRequest) -> JsonObject:
    actions: JsonObject = {"type": "string", "enum": list(asked.choices)}
    return _object({"action": actions, "reason": _TEXT, **_edits(asked)}, ["action"])


def _choice(asked: EscalateRequest, payload: Any) -> JsonObject:
    given = _fields(payload)
    edited = given.get("editedArgs")
    changes: JsonObject = {} if edited is None else {"modified_params": edited}
    return {"action": given.get("action"), **changes, **_reason(given)}


_RESPONSES: Mapping[str, _Response] = {
    "approve": _Response(_approval_schema, _approval),
    "confirm": _Response(_confirmation_schema, _confirmation),
    "ask": _Response(_form_schema, _form),
    "escalate": _Response(_choice_schema, _choice),
}


def _fields(payload: Any) -> Mapping[str, Any]:
    if not isinstance(payload, Mapping):
        raise _NoAnswer("the payload has to be an object that fits the response schema")
    return cast("Mapping[str, Any]", payload)


def _yes_or_no(given: Mapping[str, Any]) -> bool:
    approved = given.get("approved")
    if not isinstance(approved, bool):
        raise _NoAnswer("approved has to be true or false")
    return approved


def _reason(given: Mapping[str, Any]) -> JsonObject:
    return {} if given.get("reason") is None else {"reason": given["reason"]}


def _edits(asked: HitlPayload) -> JsonObject:
    """The schema of edited arguments, without the tool's defaults: a front end that fills forms with defaults would
    send them in place of the call's arguments."""
    schema = asked.edit_schema
    if schema is None:
        return {}
    fields: Any = schema.get("properties")
    if isinstance(fields, dict):
        plain = {name: _no_default(field) for name, field in cast("dict[str, Any]", fields).items()}
        schema = {**schema, "properties": plain}
    return {"editedArgs": schema}


def _no_default(field: Any) -> Any:
    if not isinstance(field, dict):
        return field
    return {word: value for word, value in cast("dict[str, Any]", field).items() if word != "default"}


def _object(fields: JsonObject, required: list[str]) -> JsonObject:
    return {"type": "object", "properties": fields, "required": list(required)}


def _question(question: Question) -> JsonObject:
    one: JsonObject = dict(_TEXT)
    if question.options and not any(it.allow_input for it in question.options):
        one = {"oneOf": [{"const": it.value, "title": it.label} for it in question.options]}
    if question.multi_select:
        return {"type": "array", "title": question.prompt, "items": one}
    return {**one, "title": question.prompt}
