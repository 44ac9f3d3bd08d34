"""The protocol's objects accept and refuse what the published schemas do, and keep what they read."""

from __future__ import annotations

import copy
import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.published_protocol import (
    FULL,
    SCHEMA_OF,
    documents,
    example_documents,
    needs_published,
    own_validator,
    published_validator,
)
from pydantic import ValidationError

import askfirst.protocol
from askfirst.errors import InvalidProtocolObject
from askfirst.protocol import (
    FormField,
    HumanInputRequired,
    VerificationPolicy,
)
from askfirst.protocol.wire import Wire

DOCUMENTS = documents()


def accepts(model: type[Wire], data: Any) -> bool:
    try:
        model.model_validate(data)
    except ValidationError:
        return False
    return True


# The published examples.


@needs_published
def test_the_examples_hold_every_kind_of_object() -> None:
    found = {model for model, _ in example_documents()}
    assert set(SCHEMA_OF) - found <= {FormField, askfirst.protocol.ReviewSubmission}
    assert len(example_documents()) > 40


@needs_published
@pytest.mark.parametrize(("model", "data"), DOCUMENTS)
def test_every_document_is_valid_everywhere(model: type[Wire], data: dict[str, Any]) -> None:
    published_validator(model).validate(data)
    own_validator(model).validate(data)
    model.read(data)


@pytest.mark.parametrize(("model", "data"), DOCUMENTS)
def test_what_is_read_is_written_again(model: type[Wire], data: dict[str, Any]) -> None:
    read = model.read(json.dumps(data))
    assert model.read(read.wire()) == model.read(read.model_dump_json()) == read
    written = read.wire()
    assert without_defaults(written) == without_defaults(data)


def without_defaults(value: Any) -> Any:
    """Less what may be said or left out without a difference, and with times as moments."""
    if isinstance(value, dict):
        silent = {"callback_url": None, "required": False, "sensitive": False, "default": None}
        kept = {key: each for key, each in value.items() if not (key in silent and silent[key] is each)}
        return {key: without_defaults(each) for key, each in kept.items()}
    if isinstance(value, list):
        return [without_defaults(each) for each in value]
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) and "T" in value else value
    except ValueError:
        return value


# Mutations.

ODD = [
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    1.5,
    10**30,
    "",
    "x-own",
    "no such thing",
    "a b",
    [],
    [1],
    {},
    {"a": 1},
]
TELLING = [
    *(
        "0.7",
        "0.8",
        "x",
        "X-own",
        "http://a.example/",
        "http://localhost",
        "http://localhost:1/a?b=c",
        "mailto:a@b",
    ),
    *(
        "http://localhost?a=b",
        "https://",
        "https://a.example/ä",
        "https://a.example/%zz",
        "ftp://a",
        "//a",
        "a@b",
    ),
    *(
        "http://127.0.0.1:80/x",
        "http://127.0.0.2/",
        "https://[::1]/",
        "https://a.example/#f",
        "https://u:p@a/",
        "@",
    ),
    *(
        "2026-02-30T10:00:00Z",
        "2026-02-22T24:00:00Z",
        "2026-02-22t10:00:00z",
        "2026-02-22 10:00:00Z",
        "2026-02-22",
    ),
    *(
        "2026-02-22T10:00:00",
        "2026-02-22T10:00:00.123456789Z",
        "2026-02-22T10:00:00-23:59",
        "0000-01-01T00:00:00Z",
    ),
    *(
        "completed",
        "expired",
        "pending",
        "inline_submit",
        "browser_submit",
        "p" * 500,
        "p" * 501,
        "l" * 201,
        "🙂" * 200,
    ),
    *("1a", "a1", "a-b", "ä", "review_1"),
]
NAMES = [
    "x-note",
    "unknown",
    "form",
    "fields",
    "steps",
    "submit_url",
    "submit_token",
    "result",
    "case_id",
    "min_length",
]
LETTERS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), max_size=40)
VALUES = st.one_of(st.sampled_from(ODD), st.sampled_from(TELLING), st.integers(), LETTERS).map(copy.deepcopy)


def places(value: Any) -> list[Any]:
    """Every object and list in a document, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, dict | list) else []
    return own + [place for each in inner for place in places(each)]


@st.composite
def mutated(draw: st.DrawFn) -> tuple[type[Wire], Any]:
    model, original = draw(st.sampled_from(DOCUMENTS))
    data = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(data)))
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        act = draw(st.sampled_from(["drop", "change", "add", "swap"]))
        if act == "add" or not keys:
            value = draw(VALUES)
            if isinstance(place, dict):
                place[draw(st.sampled_from(NAMES))] = value
            else:
                place.append(value)
            continue
        key = draw(st.sampled_from(keys))
        if act == "drop":
            del place[key]
        else:
            place[key] = (
                draw(VALUES) if act == "change" else copy.deepcopy(place[draw(st.sampled_from(keys))])
            )
    return model, data


@needs_published
@settings(max_examples=600, deadline=None)
@given(mutated())
def test_models_agree_with_the_published_schemas(case: tuple[type[Wire], Any]) -> None:
    model, data = case
    expected = published_validator(model).is_valid(data)
    assert accepts(model, data) is expected
    assert own_validator(model).is_valid(data) is expected


BARE = {"status": "human_input_required", "message": "m", "data": {"a": 1}, "hitl": FULL}
EACH = [each for each in DOCUMENTS if each[0] is not HumanInputRequired]  # their parts are among the rest


def restore(place: Any, whole: Any) -> None:
    """Put into an object or a list what it held."""
    if isinstance(place, dict):
        place.clear()
        place.update(whole)
    else:
        place[:] = whole


@needs_published
@pytest.mark.parametrize(("model", "data"), [*EACH, (HumanInputRequired, BARE)])
def test_every_single_mutation_is_judged_alike(model: type[Wire], data: dict[str, Any]) -> None:
    """Each place of each document dropped, and replaced by each odd value."""
    changed = copy.deepcopy(data)
    for place in places(changed):
        whole = copy.copy(place)
        for key in list(place) if isinstance(place, dict) else range(len(place)):
            for value in ("drop", *ODD, *(TELLING if isinstance(place[key], str) else ())):
                if value == "drop":
                    del place[key]
                else:
                    place[key] = value
                assert accepts(model, changed) is published_validator(model).is_valid(changed), (key, value)
                restore(place, whole)
    assert changed == data


@settings(max_examples=200, deadline=None)
@given(mutated())
def test_a_refusal_is_always_ours_and_names_its_faults(case: tuple[type[Wire], Any]) -> None:
    model, data = case
    if accepts(model, data):
        return
    with pytest.raises(InvalidProtocolObject) as refused:
        model.read(data)
    assert refused.value.kind == model.__name__
    assert refused.value.faults
    assert all(refused.value.faults.values())


def test_a_way_of_answering_is_named_once() -> None:
    policy = next((data for model, data in DOCUMENTS if model is VerificationPolicy))
    for named, good in (
        (["inline_submit", "browser_submit"], True),
        (["inline_submit"] * 2, False),
        ([], False),
    ):
        changed = {**policy, "required_for": named}
        assert (
            accepts(VerificationPolicy, changed)
            is own_validator(VerificationPolicy).is_valid(changed)
            is good
        )
