"""Canonical JSON and digests: equal values, and only those, have equal ones."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import rfc8785
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kit.message_strategies import json_objects, json_values

from askfirst.errors import InvalidMessage
from askfirst.messages import (
    AssistantMessage,
    ToolCall,
    call_digest,
    canonical_json,
    decode,
    encode,
)


@pytest.mark.parametrize(
    ("bits", "written"),
    [  # RFC 8785, appendix B, but for doubles that have as many digits as large integers
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352825856"),  # there 295147905179352830000
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999737856"),  # there 999999999999999700000
        ("444b1ae4d6e2ef4f", "999999999999999868928"),  # there 999999999999999900000
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_canonical_numbers(bits: str, written: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(number) == written.encode()


def test_canonical_key_order_is_by_utf16() -> None:
    """RFC 8785, section 3.2.3: the emoji sorts before U+FB33, as its surrogates do."""
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    written = canonical_json(dict.fromkeys(keys, 0)).decode()
    assert list(json.loads(written)) == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_canonical_example_of_the_rfc() -> None:
    """RFC 8785, section 3.2.2."""
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert canonical_json(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


@pytest.mark.parametrize("number", [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**64, 10**30])
def test_large_integers_keep_all_their_digits(number: int) -> None:
    assert canonical_json({"n": [number]}) == b'{"n":[%d]}' % number


def test_a_string_of_digits_is_no_number() -> None:
    assert canonical_json([2**60, str(2**60)]) == b'[1152921504606846976,"1152921504606846976"]'


@pytest.mark.parametrize(
    "value",
    [math.nan, [2**60, math.inf], [math.inf, 2**60], object(), {1: 2}, "\ud800", {"\ud800": 1}, 10**5000],
    ids=["nan", "large and inf", "inf and large", "object", "key", "half", "half key", "huge"],
)
def test_what_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(InvalidMessage, match="no canonical JSON"):
        canonical_json(value)


def _shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(item) for key, item in reversed(value.items())}
    return [_shuffled(item) for item in value] if isinstance(value, list) else value


def _meaning(value: Any) -> Any:
    """What a JSON value says, as a Python value that is equal exactly where the JSON is."""
    if isinstance(value, dict):
        return {key: _meaning(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_meaning(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return (type(value).__name__, value)
    return value if not isinstance(value, float) or abs(value) < 1e21 else ("float", value)


@given(json_objects)
def test_digest_does_not_depend_on_key_order(args: dict[str, Any]) -> None:
    assert ToolCall("a", "b", args).digest == ToolCall("z", "b", _shuffled(args)).digest


@given(json_objects)
def test_digest_survives_the_round_trip(args: dict[str, Any]) -> None:
    call = ToolCall("a", "b", args)
    assert (
        decode(encode(AssistantMessage(call))).tool_calls[0].digest == call.digest == call_digest("b", args)
    )


near = st.sampled_from(
    [0, 1, 1.0, -0.0, True, False, None, "", "1", [], {}, 2**53, 2**53 + 1, 2.0**53, 2**60, 2.0**60, 1e21]
)
large = st.floats(2.0**53, 1e21) | st.integers(2**53, 10**21)


@settings(max_examples=300)
@given(near | large | json_values, near | large | json_values)
@example(2.0**60, 1152921504606847000)
@example(-(2.0**60), -1152921504606847000)
@example(2.0**60, 2**60)
@example([1.5, 2.0**60], [1.5, 1152921504606847000])
@example(123456789012345678.0, 123456789012345680)
@example(2**53, 2**53 + 1)
@example(2**60, 2**60 + 1)
@example(2.0**53, 2**53)
@example(1, True)
@example("1", 1)
@example({"a": 1, "b": 2}, {"b": 2.0, "a": 1})
@example([], {})
def test_digests_are_equal_exactly_where_values_are(one: Any, other: Any) -> None:
    same = call_digest("t", {"x": one}) == call_digest("t", {"x": other})
    assert same == (_meaning(one) == _meaning(other))


def test_digest_covers_name_and_arguments() -> None:
    digest = ToolCall("a", "add", {"a": 1, "b": "ü"}).digest
    assert digest == hashlib.sha256('{"args":{"a":1,"b":"ü"},"name":"add"}'.encode()).hexdigest()
    assert digest != ToolCall("a", "sub", {"a": 1, "b": "ü"}).digest
    assert digest != ToolCall("a", "add", {"a": 1, "b": "u"}).digest
    assert digest == ToolCall("other", "add", {"b": "ü", "a": 1.0}).digest


@given(json_values)
def test_the_quick_way_writes_what_the_rfc_says(value: Any) -> None:
    try:
        by_the_book = rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        assume(False)
    assume(not any(2**53 <= abs(each) < 1e21 for each in _floats(value)))
    assert canonical_json(value) == by_the_book


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _floats(item)


@pytest.mark.parametrize(
    ("args", "digest"),
    [
        ({"id": 1152921504606847000}, "cbf34e64c586cd13997297bc3a57a3060fb181bdfbea72f1a0c56f19bee84b2b"),
        (
            {"wei": 1e18, "rate": 0.1, "n": 1e21, "small": 5e-324},
            "8a08c34a86d3a1b0f868fbe517f502ced93c537b2ae72d57e8dcd35a2d6ba903",
        ),
        (
            {"id": 2**60, "cents": 4900, "name": "\u00e9"},
            "6caa0a37638de16dc96c2e2df2ed969145184a1133ca17aa513067c79b3cf742",
        ),
        (
            {"n": [2.0**53, -0.0, 1.5, 10**30]},
            "3fd7dd9d3d731cdce359ee6840e862a0043e4f5b87ef036f2db9c2d66603ab27",
        ),
    ],
)
def test_digests_that_are_stored_stay_what_they_are(args: dict[str, Any], digest: str) -> None:
    """As they were before large floats got digits of their own; those alone have changed."""
    assert call_digest("pay", args) == digest
