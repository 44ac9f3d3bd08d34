"""Answers to forms: what is shown, what fits, what is refused and how it is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.errors import InvalidFormData, InvalidProtocolObject
from askfirst.protocol import (
    FIELD_TYPES,
    Form,
    check_form,
    clean_form_data,
    redacted,
    sensitive_keys,
    visible_fields,
)


def form(*fields: dict[str, Any]) -> Form:
    return Form.read({"fields": [{"label": field["key"], "type": "text", **field} for field in fields]})


def steps(*groups: list[dict[str, Any]]) -> Form:
    each = [
        {"title": "t", "fields": [{"label": "l", "type": "text", **field} for field in group]}
        for group in groups
    ]
    return Form.read({"steps": each})


def faults(of: Form, data: dict[str, Any], **options: Any) -> dict[str, str]:
    with pytest.raises(InvalidFormData) as refused:
        clean_form_data(of, data, **options)
    return refused.value.faults


def fault(field: dict[str, Any], value: Any) -> str | None:
    of = form({"key": "a", **field})
    try:
        assert clean_form_data(of, {"a": value}) == {"a": value}
    except InvalidFormData as error:
        return error.faults["a"]
    return None


ONE_OR_TWO = [{"value": "1", "label": "One"}, {"value": "2", "label": "Two"}]

# Types.


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ({"type": "text"}, ["a", "ä" * 10_000], [1, True, ["a"], {"a": 1}, "\ud800", "a" * 1_000_001]),
        ({"type": "textarea"}, ["a\nb"], [1, ["a"]]),
        ({"type": "x-own"}, ["a"], [1, False]),
        ({"type": "number"}, [0, -1, 2.5, 10**20], ["1", True, float("nan"), float("inf"), [1]]),
        ({"type": "range"}, [0, 7], ["7", False]),
        (
            {"type": "date"},
            ["2026-05-01", "2024-02-29"],
            ["2025-02-29", "2026-5-1", "20260501", "2026-05-01T00:00", 1],
        ),
        ({"type": "email"}, ["a@b.example"], ["a", "@", "a@", "a b@c", "a@b@c", 1]),
        (
            {"type": "url"},
            ["https://a.example/?q=1", "http://a"],
            ["a", "javascript:alert(1)", "https://", "//a", 1],
        ),
        ({"type": "boolean"}, [True, False], ["true", 0, 1, "on"]),
        ({"type": "select", "options": ONE_OR_TWO}, ["1"], ["3", 1, ["1"], "One"]),
        (
            {"type": "multiselect", "options": ONE_OR_TWO},
            [["1"], ["2", "1"]],
            ["1", ["3"], ["1", "1"], [1], [["1"]]],
        ),
    ],
)
def test_each_type_takes_its_values(field: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert fault(field, value) is None
    for value in bad:
        told = fault(field, value)
        assert told
        assert told.startswith(("must ", "is "))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ({"validation": {"minLength": 3}}, "ab", "must have at least 3 characters"),
        ({"validation": {"maxLength": 3}}, "abcd", "must have at most 3 characters"),
        ({"validation": {"maxLength": 3}}, "🙂🙂🙂", None),
        ({"validation": {"pattern": "[a-z]+"}}, "ab1", "does not have the expected form"),
        ({"validation": {"pattern": "[a-z]+"}}, "1ab", "does not have the expected form"),
        ({"validation": {"pattern": "[a-z]+"}}, "ab\n", "does not have the expected form"),
        ({"validation": {"pattern": "^a|b$"}}, "axb", "does not have the expected form"),
        ({"validation": {"pattern": "^[a-z]+$"}}, "ab", None),
        ({"type": "textarea", "validation": {"pattern": "x"}}, "anything", None),
        (
            {"type": "email", "validation": {"pattern": ".*@b[.]example"}},
            "a@c.example",
            "does not have the expected form",
        ),
        ({"type": "number", "validation": {"min": 1, "max": 2.5}}, 0, "must be at least 1"),
        ({"type": "number", "validation": {"min": 1, "max": 2.5}}, 3, "must be at most 2.5"),
        ({"type": "range", "validation": {"min": 1, "max": 2.5}}, 2.5, None),
    ],
)
def test_bounds_are_kept(field: dict[str, Any], value: Any, expected: str | None) -> None:
    assert fault(field, value) == expected


def test_a_hostile_pattern_takes_no_time() -> None:
    """Engines that backtrack would need longer than the test's time limit."""
    assert fault({"validation": {"pattern": "(a+)+b"}}, "a" * 10_000) == "does not have the expected form"


# Required and empty.


@pytest.mark.parametrize("empty", [None, "", "  \n", []])
def test_an_empty_value_is_no_answer(empty: Any) -> None:
    of = form({"key": "a", "required": True}, {"key": "b"})
    assert faults(of, {"a": empty, "b": empty}) == {"a": "is required"}
    assert clean_form_data(of, {"a": "x", "b": empty}) == {"a": "x"}
    assert faults(of, {}) == {"a": "is required"}


def test_no_and_zero_are_answers() -> None:
    of = form(
        {"key": "a", "type": "boolean", "required": True}, {"key": "b", "type": "number", "required": True}
    )
    assert clean_form_data(of, {"a": False, "b": 0}) == {"a": False, "b": 0}


def test_every_fault_is_told_by_its_key_and_without_the_answer() -> None:
    of = form({"key": "a", "required": True}, {"key": "b", "type": "number"}, {"key": "c", "sensitive": True})
    with pytest.raises(InvalidFormData) as refused:
        clean_form_data(of, {"b": "hunter2", "c": ["hunter2"], "d": "hunter2"})
    assert refused.value.faults == {
        "a": "is required",
        "b": "must be a number",
        "c": "must be text",
        "d": "is no field of this form",
    }
    assert str(refused.value).startswith("these answers do not fit the form: ")
    assert "hunter2" not in str(refused.value)


# Conditions.


@pytest.mark.parametrize(
    ("operator", "operand", "kind", "shown_for", "hidden_for"),
    [
        ("eq", "1", "text", ["1"], ["2", None, "01"]),
        ("eq", True, "boolean", [True], [False, None]),
        ("eq", 1, "number", [1, 1.0], [2, None]),
        ("eq", 1, "boolean", [], [True]),
        ("neq", "1", "text", ["2", None, ""], ["1"]),
        ("in", ["1", "2"], "text", ["1", "2"], ["3", None]),
        ("in", "12", "text", [], ["1"]),
        ("gt", 5, "number", [5.5, 6], [5, 4, None]),
        ("lt", 5, "number", [4], [5, 6, None]),
        ("gt", "5", "number", [], [6]),
        ("gt", "2026-05-01", "date", ["2026-05-02"], ["2026-05-01", "2025-12-31", None]),
        ("eq", "1", "multiselect", [["1"], ["1", "2"]], [["2"], [], None]),
        ("eq", ["1", "2"], "multiselect", [["1", "2"], ["2", "1"]], [["1"], None]),
        ("neq", "1", "multiselect", [["2"], [], None], [["1", "2"]]),
        ("in", ["2", "3"], "multiselect", [["1", "2"]], [["1"], None]),
    ],
)
def test_conditions(
    operator: str, operand: Any, kind: str, shown_for: list[Any], hidden_for: list[Any]
) -> None:
    options = {"options": ONE_OR_TWO} if kind == "multiselect" else {}
    of = form(
        {"key": "a", "type": kind, **options},
        {"key": "b", "required": True, "conditional": {"field": "a", "operator": operator, "value": operand}},
    )
    for value in shown_for:
        assert [field.key for field in visible_fields(of, {"a": value})] == ["a", "b"]
        assert faults(of, {"a": value}) == {"b": "is required"}
        assert clean_form_data(of, {"a": value, "b": "x"})["b"] == "x"
    for value in hidden_for:
        assert [field.key for field in visible_fields(of, {"a": value})] == ["a"]
        assert "b" not in clean_form_data(of, {"a": value, "b": None})
        assert faults(of, {"a": value, "b": "x"}) == {"b": "is not shown, so it takes no value"}


def test_what_looks_at_a_hidden_field_is_hidden_too() -> None:
    of = form(
        {"key": "a", "type": "boolean"},
        {"key": "b", "conditional": {"field": "a", "operator": "eq", "value": True}},
        {"key": "c", "required": True, "conditional": {"field": "b", "operator": "neq", "value": "x"}},
    )
    assert clean_form_data(of, {"a": False}) == {"a": False}
    assert faults(of, {"a": False, "b": "y", "c": "z"}).keys() == {"b", "c"}
    assert faults(of, {"a": True}) == {"c": "is required"}


def test_a_fault_brings_no_guesses_about_what_depends_on_it() -> None:
    of = form(
        {"key": "a", "type": "number"},
        {"key": "b", "required": True, "conditional": {"field": "a", "operator": "gt", "value": 5}},
        {"key": "c", "required": True, "conditional": {"field": "b", "operator": "eq", "value": "x"}},
    )
    assert faults(of, {"a": "six", "b": "x"}) == {"a": "must be a number"}
    assert faults(of, {"a": "six"}) == {"a": "must be a number"}


# Steps.

WIZARD = steps(
    [{"key": "a", "required": True}],
    [{"key": "b", "required": True, "conditional": {"field": "a", "operator": "eq", "value": "x"}}],
    [],
)


def test_steps_are_one_form() -> None:
    assert clean_form_data(WIZARD, {"a": "x", "b": "y"}) == {"a": "x", "b": "y"}
    assert clean_form_data(WIZARD, {"a": "y"}) == {"a": "y"}
    assert faults(WIZARD, {"a": "x"}) == {"b": "is required"}


def test_a_person_half_way_is_asked_for_no_more() -> None:
    assert clean_form_data(WIZARD, {"a": "x", "b": "kept for later"}, through_step=1) == {"a": "x"}
    assert faults(WIZARD, {"b": "y"}, through_step=1) == {"a": "is required"}
    assert faults(WIZARD, {"a": "x"}, through_step=2) == {"b": "is required"}
    assert faults(WIZARD, {"a": "x", "z": 1}, through_step=1) == {"z": "is no field of this form"}


# Forms that make no sense.


@pytest.mark.parametrize(
    ("fields", "key", "why"),
    [
        ([{"key": "a"}, {"key": "a"}], "a", "an earlier field too"),
        (
            [{"key": "a", "conditional": {"field": "b", "operator": "eq", "value": 1}}, {"key": "b"}],
            "a",
            "'b'",
        ),
        (
            [{"key": "a", "conditional": {"field": "a", "operator": "eq", "value": 1}}],
            "a",
            "no earlier field",
        ),
        ([{"key": "a", "type": "select"}], "a", "a select needs options"),
        ([{"key": "a", "type": "multiselect", "options": []}], "a", "a multiselect needs options"),
        ([{"key": "a", "validation": {"pattern": "("}}], "a", "its pattern is no regular expression"),
        ([{"key": "a", "validation": {"pattern": "a)(b"}}], "a", "its pattern is no regular expression"),
        ([{"key": "a", "validation": {"pattern": "(?=a)"}}], "a", "look-around"),
        ([{"key": "a", "type": "date", "validation": {"min": 1}}], "a", "a date has no min or max"),
        ([{"key": "a", "type": "number", "validation": {"min": 2, "max": 1}}], "a", "no room"),
        ([{"key": "a", "validation": {"minLength": 2, "maxLength": 1}}], "a", "no room"),
        ([{"key": "a", "sensitive": True, "default": "x"}], "a", "use default_ref"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused(fields: list[dict[str, Any]], key: str, why: str) -> None:
    of = form(*fields)
    for act in (lambda: check_form(of), lambda: clean_form_data(of, {})):
        with pytest.raises(InvalidProtocolObject) as refused:
            act()
        assert why in refused.value.faults[key]


def test_all_faults_of_a_form_are_told_at_once() -> None:
    of = form({"key": "a", "type": "select", "validation": {"pattern": "("}}, {"key": "b", "type": "select"})
    with pytest.raises(InvalidProtocolObject) as refused:
        check_form(of)
    assert refused.value.faults.keys() == {"a", "b"}
    assert "; " in refused.value.faults["a"]


# Sensitive values.


def test_sensitive_values_are_replaced_and_the_rest_is_kept() -> None:
    of = steps([{"key": "pin", "sensitive": True}], [{"key": "name"}, {"key": "iban", "sensitive": True}])
    data = {"pin": "1234", "name": "A", "other": 1}
    assert sensitive_keys(of) == {"pin", "iban"}
    assert redacted(data, of) == {"pin": "[redacted]", "name": "A", "other": 1}
    assert data["pin"] == "1234"


# Any form and any answers.

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def forms(draw: st.DrawFn) -> Form:
    fields: list[dict[str, Any]] = []
    for key in "abcd"[: draw(st.integers(1, 4))]:
        kind = draw(st.sampled_from([*FIELD_TYPES, "x-own"]))
        field: dict[str, Any] = {
            "key": key,
            "type": kind,
            "required": draw(st.booleans()),
            "options": ONE_OR_TWO,
        }
        if fields and draw(st.booleans()):
            looks_at = draw(st.sampled_from([each["key"] for each in fields]))
            operator = draw(st.sampled_from(["eq", "neq", "in", "gt", "lt"]))
            value = draw(st.sampled_from(["1", 1, True, None, ["1", 2]]))
            field["conditional"] = {"field": looks_at, "operator": operator, "value": value}
        fields.append(field)
    return form(*fields)


@given(forms(), st.dictionaries(st.sampled_from("abcde"), JSON, max_size=5))
def test_clean_data_is_what_was_given_for_what_is_shown(of: Form, data: dict[str, Any]) -> None:
    try:
        clean = clean_form_data(of, data)
    except InvalidFormData as error:
        refused = set(error.faults)
    else:
        shown = visible_fields(of, data)
        assert all(value is data[key] for key, value in clean.items())
        assert set(clean) <= {field.key for field in shown}
        assert {field.key for field in shown if field.required} <= set(clean)
        assert clean_form_data(of, clean) == clean
        return
    assert refused
    assert refused <= {*data, *(field.key for field in of.all_fields)}
