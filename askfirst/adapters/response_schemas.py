"""What a front end may send back for a request: a JSON Schema for it, and the answer that such a payload stands for.

The names are those that AG-UI recommends (``approved``, ``editedArgs``). A payload's other fields are not read, so
nothing in it can say who answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from askfirst.errors import HitlInvalidAnswer
from askfirst.messages import JsonObject
from askfirst.requests import AskRequest, ConfirmRequest, EscalateRequest, HitlRequest, Question

_TEXT: JsonObject = {"type": "string"}
_YES_OR_NO: JsonObject = {"type": "boolean"}


def response_schema(request: HitlRequest) -> JsonObject:
    """The JSON Schema of a payload that answers a request. ``editedArgs`` is in it if arguments can be edited."""
    payload = request.payload
    if isinstance(payload, ConfirmRequest):
        return _YES_OR_NO
    if isinstance(payload, AskRequest):
        fields: JsonObject = {it.key: _question(it) for it in payload.questions}
        return _object(fields, [it.key for it in payload.questions if it.required])
    edits: JsonObject = {} if payload.edit_schema is None else {"editedArgs": payload.edit_schema}
    if isinstance(payload, EscalateRequest):
        actions: JsonObject = {"action": {"type": "string", "enum": list(payload.choices)}}
        return _object({**actions, "reason": _TEXT, **edits}, ["action"])
    return _object({"approved": _YES_OR_NO, "reason": _TEXT, **edits}, ["approved"])


def answer_in(request: HitlRequest, payload: Any) -> Any:
    """The answer, as plain JSON, that a payload stands for. Raises `HitlInvalidAnswer` if it stands for none.

    Whether the answer fits the request is checked by whoever takes it: see `askfirst.requests.fit_answer`.
    """
    asked = request.payload
    if isinstance(asked, ConfirmRequest) and isinstance(payload, bool):
        return payload
    if not isinstance(payload, Mapping):
        raise HitlInvalidAnswer(
            request.question_id, ["the payload is an object, as the response schema says"]
        )
    given = cast("Mapping[str, Any]", payload)
    if isinstance(asked, AskRequest):
        return dict(given)
    reason: JsonObject = {} if given.get("reason") is None else {"reason": given["reason"]}
    edited = given.get("editedArgs")
    if isinstance(asked, EscalateRequest):
        changes: JsonObject = {} if edited is None else {"modified_params": edited}
        return {"action": given.get("action"), **changes, **reason}
    approved = given.get("approved")
    if not isinstance(approved, bool):
        raise HitlInvalidAnswer(request.question_id, ["approved is true or false"])
    if isinstance(asked, ConfirmRequest):
        return approved
    if edited is None:
        return {"decision": "approve" if approved else "deny", **reason}
    if not approved:
        raise HitlInvalidAnswer(request.question_id, ["editedArgs go with an approval"])
    if asked.edit_schema is None:
        raise HitlInvalidAnswer(request.question_id, ["the arguments of this call cannot be edited"])
    return {"decision": "edit", "edited_args": edited, **reason}


def _object(fields: JsonObject, required: list[str]) -> JsonObject:
    return {"type": "object", "properties": fields, "required": list(required)}


def _question(question: Question) -> JsonObject:
    one: JsonObject = dict(_TEXT)
    if question.options and not any(it.allow_input for it in question.options):
        one = {"oneOf": [{"const": it.value, "title": it.label} for it in question.options]}
    if question.multi_select:
        return {"type": "array", "title": question.prompt, "items": one}
    return {**one, "title": question.prompt}
