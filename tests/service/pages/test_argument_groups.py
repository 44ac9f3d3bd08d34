"""Many arguments: those that differ from the tool's defaults come first, the usual ones are folded and whole."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from kit.page_scenes import CHANGED, Scene
from kit.page_text import Page
from kit.standing_cases import ROLLOUT_ARGS, rollout

from askfirst import tool
from askfirst.agent.tools import json_object
from askfirst.service.case import Case
from askfirst.service.pages import Reader
from askfirst.service.pages.decision import Decision, decision_of
from askfirst.service.pages.language import languages
from askfirst.service.risk_patterns import shipped_patterns


def with_payload(case: Case, **changed: Any) -> Case:
    assert case.request is not None
    payload = case.request.payload.model_copy(update=changed)
    return dataclasses.replace(case, request=case.request.model_copy(update={"payload": payload}))


def with_defaults(args: dict[str, Any], defaults: dict[str, Any], **display: Any) -> Case:
    schema = {"type": "object", "properties": {name: {"default": it} for name, it in defaults.items()}}
    return with_payload(rollout(), args=args, args_schema=schema, display=display)


def keys(decision: Decision, group: str) -> list[str]:
    return [row.key for row in decision.rows if row.group == group]


def said_on(html: str) -> str:
    return " ".join(" ".join(it.text for it in Page(html).all("p")).split())


NUMBERS: dict[str, Any] = {f"n{number}": number for number in range(13)}


def test_important_ones_then_what_differs_then_the_usual_ones() -> None:
    decision = decision_of(rollout(**CHANGED))
    assert keys(decision, "first") == ["service", "version", "token"]
    assert keys(decision, "differs") == ["limit_07", "flag_12", "flag_13"]
    assert keys(decision, "usual") == [
        name
        for name in ROLLOUT_ARGS
        if name not in ("service", "version", "token", "limit_07", "flag_12", "flag_13")
    ]
    assert [row.key for row in decision.rows if row.differs] == ["version", "limit_07", "flag_12", "flag_13"]
    assert [row.group for row in decision.rows] == ["first"] * 3 + ["differs"] * 3 + ["usual"] * 54


def test_the_page_counts_what_differs_and_folds_the_rest() -> None:
    html = Scene(rollout(**CHANGED)).html()
    page = Page(html)
    said = "60 arguments. 4 differ from the tool’s defaults. Hidden values are not compared."
    assert said in said_on(html)
    [fold] = [it for it in page.all("details") if "54 more, as usual" in it.text]
    assert all(f"limit_{number:02}" in fold.text for number in range(1, 31) if number != 7)
    assert "limit_07" not in fold.text
    assert "version" not in fold.text
    assert html.count('class="tag soon"') == 1  # only at the important one: the others are below a heading


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("en", "13 arguments. 1 differs from the tool’s defaults."),
        ("zh-Hans", "共 13 项参数。其中 1 项与工具的默认值不同。"),
    ],
)
def test_both_languages_say_it(tag: str, said: str) -> None:
    html = Scene(with_defaults({**NUMBERS, "n3": 99}, NUMBERS)).html(Reader(language=languages()[tag]))
    assert said in said_on(html)


def test_a_fold_of_usual_values_is_not_unopened() -> None:
    case = with_payload(rollout(), display={"risk": "high"})
    decision = decision_of(case)
    assert len(keys(decision, "usual")) > 50
    assert decision.unopened == ()
    assert decision.friction.second_step
    assert not decision.friction.tick
    assert "Not all of it was opened" not in Scene(case).html()


def test_rows_that_the_page_does_not_have_are_still_unopened_and_differing_ones_come_first() -> None:
    usual: dict[str, Any] = {f"n{number}": number for number in range(150)}
    decision = decision_of(with_defaults({**usual, "n149": "other"}, usual, risk="high"))
    assert decision.rows[0].key == "n149"
    assert [(it.first, it.last) for it in decision.rest_of_rows] == [(101, 150)]
    assert decision.friction.tick


def test_twelve_arguments_are_all_shown_as_they_come() -> None:
    few = dict(list(NUMBERS.items())[:12])
    decision = decision_of(with_defaults({**few, "n11": 99}, few))
    assert decision.grouped is None
    assert [row.key for row in decision.rows] == list(few)
    assert decision_of(with_defaults(NUMBERS, NUMBERS)).grouped is not None


@pytest.mark.parametrize(
    "schema", [None, {}, {"properties": []}, {"properties": {"n1": {"type": "integer"}, "n2": True}}]
)
def test_without_defaults_nothing_is_claimed(schema: Any) -> None:
    case = with_payload(rollout(), args=NUMBERS, args_schema=schema, display={})
    assert decision_of(case).grouped is None
    html = Scene(case).html()
    assert "as usual" not in html
    assert "Differs from the usual" not in html
    assert "defaults" not in said_on(html)


def test_a_value_without_a_default_is_neither_usual_nor_different() -> None:
    some = {name: value for name, value in NUMBERS.items() if name != "n5"}
    decision = decision_of(with_defaults(NUMBERS, some))
    assert keys(decision, "first") == ["n5"]
    assert decision.grouped is not None
    assert decision.grouped.differing == frozenset()
    html = Scene(with_defaults(NUMBERS, some)).html()
    assert "13 arguments. None differs from the tool’s defaults." in said_on(html)


@pytest.mark.parametrize(
    ("value", "default", "group"),
    [
        (1, 1.0, "usual"),
        (1, True, "differs"),
        (1, "1", "differs"),
        (None, "", "differs"),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, "usual"),
        ([1, 2], [2, 1], "differs"),
        (2**60, 2**60 + 1, "differs"),
    ],
)
def test_values_are_compared_as_json(value: Any, default: Any, group: str) -> None:
    decision = decision_of(with_defaults({**NUMBERS, "n5": value}, {**NUMBERS, "n5": default}))
    assert "n5" in keys(decision, group)


@pytest.mark.parametrize(
    ("value", "default", "display"),
    [
        ("s-1", "s-1", {"formats": {"n5": "secret"}}),
        ("s-1", "s-2", {"formats": {"n5": "secret"}}),
        ("*" * 10, "*" * 10, {}),
        ({"key": ["*" * 10]}, {"key": ["x"]}, {}),
    ],
)
def test_a_secret_is_not_compared(value: Any, default: Any, display: dict[str, Any]) -> None:
    case = with_defaults({**NUMBERS, "n5": value}, {**NUMBERS, "n5": default}, **display)
    decision = decision_of(case)
    assert keys(decision, "first") == ["n5"]
    assert not decision.rows[0].differs
    assert "Hidden values are not compared." in Scene(case).html()


@pytest.mark.parametrize("value", ["rm -rf /srv", "paid\u202eto", ["ls", "rm -rf /srv"]])
def test_a_risky_line_or_a_hidden_character_is_never_folded(value: Any) -> None:
    usual = {**NUMBERS, "n5": value}
    assert keys(decision_of(with_defaults(usual, usual), patterns=shipped_patterns()), "first") == ["n5"]


def test_the_page_of_an_ended_case_or_of_an_edit_compares_nothing() -> None:
    assert decision_of(rollout(), args={**ROLLOUT_ARGS, "limit_01": 1}).grouped is None
    assert decision_of(dataclasses.replace(rollout(), status="cancelled")).grouped is None


@tool
def roll_out(
    service: str,
    a: int = 1,
    b: int = 2,
    c: int = 3,
    d: bool = False,
    e: str | None = None,
    f: str = "blue",
    g: int = 7,
    h: int = 8,
    i: int = 9,
    j: int = 10,
    k: int = 11,
    m: tuple[str, ...] = (),
) -> str:
    """Roll it out."""
    return service


def test_the_defaults_of_a_tool_reach_its_page() -> None:
    """The request carries them: no page can ask the tool, which lives in another process."""
    args = json_object(roll_out.parameters.model_validate({"service": "billing", "f": "green"}))
    assert len(args) == 13
    case = with_payload(rollout(), args=args, args_schema=roll_out.args_schema, display=None)
    decision = decision_of(case)
    assert keys(decision, "first") == ["service"]
    assert keys(decision, "differs") == ["f"]
    assert keys(decision, "usual") == [name for name in args if name not in ("service", "f")]
