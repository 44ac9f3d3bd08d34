"""A JSON Schema as questions for a person, and the typed answers as a value of the schema. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from askfirst.answers import schema_check
from askfirst.messages import JsonObject
from askfirst.requests import AskRequest, ConfirmRequest, Option, Question

_ANSWER = "answer"
_NOT_JSON = "it has to be JSON"


@dataclass(frozen=True, slots=True)
class Form:
    """Questions, and a function that reads the answers as a value. ``read`` raises `ValueError` for invalid ones."""

    payload: AskRequest | ConfirmRequest
    read: Callable[[Any], Any]


def schema_form(prompt: str, schema: Mapping[str, Any] | None) -> Form:
    """The form for a value of a schema: yes or no for a boolean, a field for each property of an object, else one
    answer. Without a schema the answer is a text."""
    if schema is not None and schema.get("type") == "boolean":
        return Form(ConfirmRequest(prompt=prompt), bool)
    if schema is not None and schema.get("type") == "object" and schema.get("properties"):
        return _object_form(prompt, schema)
    kind: Mapping[str, Any] = schema or {"type": "string"}
    question = _question_for(_ANSWER, prompt, kind, is_required=True)
    return Form(AskRequest(questions=[question]), lambda given: _checked(given[_ANSWER], kind, kind))


def _object_form(prompt: str, schema: Mapping[str, Any]) -> Form:
    fields: Mapping[str, Any] = schema["properties"]
    required = schema.get("required", ())
    questions = [
        _question_for(name, it.get("title") or name, it, is_required=name in required)
        for name, it in fields.items()
    ]
    first = questions[0]
    questions[0] = first.model_copy(update={"prompt": f"{prompt}\n\n{first.prompt}"})

    def read(given: Mapping[str, Any]) -> JsonObject:
        found: JsonObject = {}
        for name, said in given.items():
            if said != "":
                found[name] = _checked(said, fields[name], schema)
        return found

    return Form(AskRequest(questions=questions), read)


def _question_for(key: str, prompt: str, schema: Mapping[str, Any], *, is_required: bool) -> Question:
    values = schema.get("enum") or ([True, False] if schema.get("type") == "boolean" else None)
    options = None if values is None else [Option(label=as_text(it), value=as_text(it)) for it in values]
    return Question(key=key, prompt=prompt, options=options, required=is_required)


def _checked(said: str, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Any:
    """A typed text as a value of the schema; raises `ValueError` with the fault, which does not quote the text."""
    value: Any = said
    if schema.get("type") != "string" and said not in (schema.get("enum") or ()):
        try:
            value = from_json(said)
        except ValueError:
            raise ValueError(_NOT_JSON) from None
    wrapped: JsonObject = {
        "type": "object",
        "properties": {_ANSWER: dict(schema)},
        "required": [_ANSWER],
        "$defs": whole.get("$defs", {}),
    }
    check = schema_check(wrapped)
    if check is not None and (found := check({_ANSWER: value})):
        raise ValueError("; ".join(found))
    return value


def as_text(value: Any) -> str:
    """A value as people read it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else to_json(value, fallback=str).decode()
