"""Formats: what is shown formatted says exactly what the value is, and nothing else is shown formatted."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.formats import CHINESE, ENGLISH, Style, formatted, is_known

GERMAN = Style(group=".", point=",", yes="Ja", no="Nein", date="{day}. {month} {year}")


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (4900, "money:EUR", "49.00 EUR"),
        (-4905, "money:EUR", "-49.05 EUR"),
        (123456789, "money:USD", "1,234,567.89 USD"),
        (4900, "money:JPY", "4,900 JPY"),
        (4900, "money:KWD", "4.900 KWD"),
        (49, "amount:EUR", "49.00 EUR"),
        (49.1, "amount:EUR", "49.10 EUR"),
        ("49.005", "amount:EUR", "49.005 EUR"),
        (1840233, "number", "1,840,233"),
        (1500000, "bytes", "1.5 MB"),
        (1840233, "bytes", "1,840,233 bytes"),
        (1, "bytes", "1 byte"),
        (12.5, "percent", "12.5 %"),
        (1800, "duration:s", "30 min"),
        (90061.5, "duration", "1 d 1 h 1 min 1.5 s"),
        (1500, "duration:ms", "1.5 s"),
        ("2026-11-17", "date", "17 Nov 2026"),
        ("2026-11-17T08:15:00+01:00", "datetime", "17 Nov 2026, 08:15 UTC+01:00"),
        ("2026-11-17T08:15:30.5", "datetime", "17 Nov 2026, 08:15:30.5"),
        (1763366400, "datetime", "17 Nov 2025, 08:00 UTC"),
        (True, "bool", "Yes"),
        (False, "bool:on,off", "off"),
        ("DE89370400440532013000", "iban", "DE89 3704 0044 0532 0130 00"),
    ],
)
def test_a_value_in_its_format(value: Any, form: str, shown: str) -> None:
    assert formatted(value, form) == shown


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (49.5, "money:EUR"),  # minor units are whole
        ("4900", "money:EUR"),
        (True, "money:EUR"),
        (None, "money:EUR"),
        (float("nan"), "number"),
        (float("inf"), "amount:EUR"),
        (10**60, "number"),
        ("1e999999999", "amount:EUR"),
        ("tomorrow", "date"),
        ("2026-11-17T08:15", "date"),
        ("2026-11-17", "datetime"),
        ("2026-11-17T08:15:00.1234567", "datetime"),  # finer than is written
        (-5, "duration"),
        ("de89 3704 0044 0532 0130 00", "iban"),
        (True, "bool:same,same"),
        ("x", "code:sh"),
        (1, "nonsense"),
        ("1" * 500, "amount:EUR"),
    ],
)
def test_what_does_not_fit_is_shown_plain(value: Any, form: str) -> None:
    assert formatted(value, form) is None


SCALARS = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=40),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.datetimes().map(datetime.isoformat),
    st.dates().map(lambda day: day.isoformat()),
)
FORMS = ("money:EUR", "money:JPY", "amount:EUR", "number", "percent", "bytes", "duration", "duration:ms")
STYLES = (ENGLISH, CHINESE, GERMAN)


@given(SCALARS, st.sampled_from(FORMS), st.sampled_from(STYLES))
def test_a_number_that_is_shown_formatted_can_be_read_back(value: Any, form: str, style: Style) -> None:
    """Read by other code than what wrote it: digits, points and units, as a person would."""
    text = formatted(value, form, style)
    if text is None:
        return
    units = {"d": 86_400, "h": 3_600, "min": 60, "s": 1, "天": 86_400, "小时": 3_600, "分": 60, "秒": 1}
    sizes = {"bytes": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    total = Decimal(0)
    found = re.findall(r"(-?[\d.,]+) ?([^\s\d]*)", text)
    assert found
    for number, unit in found:
        plain = number.replace(style.group, "").replace(style.point, ".")
        total += Decimal(plain) * units.get(unit, sizes.get(unit, 1))
    scale = {"money:EUR": Decimal(100), "duration:ms": Decimal(1000)}.get(form, Decimal(1))
    assert total * scale == Decimal(repr(value) if isinstance(value, float) else str(value))


@given(SCALARS, st.sampled_from(("date", "datetime")), st.sampled_from((ENGLISH, GERMAN)))
def test_a_time_that_is_shown_formatted_can_be_read_back(value: Any, form: str, style: Style) -> None:
    text = formatted(value, form, style)
    if text is None:
        return
    if form == "date":
        assert datetime.strptime(text.replace(".", ""), "%d %b %Y").date().isoformat() == value
        return
    whole, _, zone = text.partition(" UTC")
    pattern = "%d %b %Y, %H:%M" + (":%S" if whole.count(":") == 2 else "") + (".%f" if "." in whole else "")
    read = datetime.strptime(whole, pattern)
    if isinstance(value, str):
        assert read == datetime.fromisoformat(value).replace(tzinfo=None)
    else:
        assert zone == ""
        assert " UTC" in text


@given(st.text(max_size=30))
def test_no_text_is_a_format_by_accident(form: str) -> None:
    if formatted(1, form) is not None or formatted("2026-11-17", form) is not None:
        assert is_known(form) or form.partition(":")[0] in ("money", "amount", "bool")


@pytest.mark.parametrize(
    "form", ["money", "money:EUR", "bool:on,off", "code:sh", "secret", "sql", "duration:ms"]
)
def test_a_format_that_there_is(form: str) -> None:
    assert is_known(form)


@pytest.mark.parametrize("form", ["", "moneys", "number:x", "duration:weeks", "bool:on", "date:x", "table:2"])
def test_a_format_that_there_is_not(form: str) -> None:
    assert not is_known(form)
