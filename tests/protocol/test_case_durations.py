"""Durations as whole seconds, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.errors import InvalidDuration
from askfirst.protocol import iso_duration, parse_duration, short_duration
from askfirst.protocol.case import LONGEST_DURATION

seconds = st.integers(1, LONGEST_DURATION)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("24h", 86_400),
        ("7d", 604_800),
        ("30m", 1_800),
        ("45s", 45),
        ("2w", 1_209_600),
        ("PT24H", 86_400),
        ("P7D", 604_800),
        ("P2W", 1_209_600),
        ("P1DT12H30M15S", 131_415),
        ("PT20M", 1_200),
        ("PT1.5H", 5_400),
        ("PT0,5M", 30),
        ("P0DT1S", 1),
    ],
)
def test_known_durations(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("P1Y", "years and months have no fixed length"),
        ("P3M", "years and months"),
        ("P1Y2M3DT4H", "years and months"),
        ("PT0S", "longer than nothing"),
        ("0h", "longer than nothing"),
        ("PT0.5S", "whole seconds"),
        ("PT1.5H30M", "only its last number"),
        ("P101W99999D", "at most 100 years"),
        ("999999999999d", "at most 100 years"),
        *(
            (text, "write it as")
            for text in ("", "P", "PT", "P1DT", "24", "h", "24H", "1h30m", "-1h", "+1h", "1.5h")
        ),
        *(
            (text, "write it as")
            for text in (" 24h", "24h\n", "PT24H\n", "pt24h", "PT1S1H", "PT١H", "P1D2W", "PT24")
        ),
        ("9" * 5000 + "h", "write it as"),
    ],
)
def test_refusals_say_why(text: str, why: str) -> None:
    with pytest.raises(InvalidDuration, match=why) as refused:
        parse_duration(text)
    assert refused.value.text == text
    assert len(str(refused.value)) < 200


@given(seconds)
def test_there_and_back(value: int) -> None:
    assert parse_duration(iso_duration(value)) == value
    assert parse_duration(short_duration(value)) == value


@given(st.integers(0, 400), st.integers(0, 50), st.integers(0, 100), st.integers(0, 100))
def test_parts_add_up(days: int, hours: int, minutes: int, rest: int) -> None:
    total = days * 86_400 + hours * 3_600 + minutes * 60 + rest
    text = f"P{days}DT{hours}H{minutes}M{rest}S"
    if total:
        assert parse_duration(text) == total
    else:
        with pytest.raises(InvalidDuration):
            parse_duration(text)


@given(st.text(max_size=20) | st.from_regex(r"P[0-9.,WDTHMSY]{0,12}", fullmatch=True))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        value = parse_duration(text)
    except InvalidDuration:
        return
    assert 0 < value <= LONGEST_DURATION
    assert parse_duration(iso_duration(value)) == value


@pytest.mark.parametrize("value", [0, -1, LONGEST_DURATION + 1])
def test_what_is_no_length_is_not_written(value: int) -> None:
    for write in (iso_duration, short_duration):
        with pytest.raises(InvalidDuration):
            write(value)


def test_how_they_are_written() -> None:
    assert [iso_duration(value) for value in (1, 90, 43_200, 604_800, 108_000)] == [
        "PT1S",
        "PT1M30S",
        "PT12H",
        "P7D",
        "P1DT6H",
    ]
    assert [short_duration(value) for value in (1, 90, 5_400, 43_200, 604_800)] == [
        "1s",
        "90s",
        "90m",
        "12h",
        "7d",
    ]
