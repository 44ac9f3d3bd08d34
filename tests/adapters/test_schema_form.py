"""A JSON Schema as a form, and what was typed as its value."""

from __future__ import annotations

from typing import Any

import pytest

from askfirst.adapters.schema_form import schema_form
from askfirst.requests import AskRequest, ConfirmRequest


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        (None, "Ada", "Ada"),
        ({"type": "string"}, "7", "7"),
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "0.5", 0.5),
        ({"enum": ["now", "later"]}, "later", "later"),
        ({"enum": [1, 2]}, "2", 2),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
    ],
)
def test_one_answer(schema: Any, typed: str, value: Any) -> None:
    form = schema_form("What?", schema)
    assert isinstance(form.payload, AskRequest)
    assert [it.prompt for it in form.payload.questions] == ["What?"]
    assert form.read({"answer": typed}) == value


@pytest.mark.parametrize(
    ("schema", "typed"), [({"type": "integer"}, "many"), ({"type": "integer", "maximum": 5}, "7")]
)
def test_what_does_not_fit_is_said_without_the_value(schema: Any, typed: str) -> None:
    with pytest.raises(ValueError) as raised:
        schema_form("How many?", schema).read({"answer": typed})
    assert typed not in str(raised.value)


def test_yes_or_no() -> None:
    form = schema_form("Go on?", {"type": "boolean"})
    assert isinstance(form.payload, ConfirmRequest)
    assert form.read(True) is True


def test_a_field_for_each_property() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name"},
            "loud": {"type": "boolean"},
            "size": {"$ref": "#/$defs/Size"},
            "note": {"type": "string"},
        },
        "required": ["name", "loud", "size"],
        "$defs": {"Size": {"type": "integer", "maximum": 9}},
    }
    form = schema_form("Who?", schema)
    assert isinstance(form.payload, AskRequest)
    assert [it.key for it in form.payload.questions] == ["name", "loud", "size", "note"]
    assert form.payload.questions[0].prompt == "Who?\n\nName"
    assert [it.value for it in form.payload.questions[1].options or []] == ["true", "false"]
    assert [it.required for it in form.payload.questions] == [True, True, True, False]
    typed = {"name": "Ada", "loud": "false", "size": "3", "note": ""}
    assert form.read(typed) == {"name": "Ada", "loud": False, "size": 3}
    with pytest.raises(ValueError, match="answer"):
        form.read({**typed, "size": "10"})
