"""Formats: how a value is written for people. A format is used only if its text can be read back to the same
value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any, cast

_MINOR_DIGITS = {
    **dict.fromkeys(
        "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(),  # noqa: SIM905
        0,
    ),
    **dict.fromkeys(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"], 3),
}
"""Currencies whose minor unit is not a hundredth (ISO 4217)."""
_LONGEST = 400
"""A longer text is not formatted: it cannot be a number, a date or an account."""
_MOST_DIGITS = 18
_SIZES = ("KB", "MB", "GB", "TB")
_IBAN = re.compile(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}")
_UNIT = re.compile(r"[\w.%/-]{1,20}")
_CURRENCY = re.compile(r"(?:[^\W\d_]|%)[\w.%/-]{0,19}")
"""The unit of an amount. It does not begin with a digit or a point: those would look like part of the number."""
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,40})?")
"""A text that every program reads as the same number: no exponent, no blanks, ASCII digits, no zero before them."""
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]{5,15}(?:Z|[+-][0-9:]{5,8})?")
"""A time as people write it: not by weeks, not without separators, and with a point before the fraction."""
_BOOL = re.compile(r"[^,]{1,20},[^,]{1,20}")
_SECONDS_OF = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Style:
    """How a language writes numbers, dates and yes or no. The default is English.

    ``date`` and ``datetime`` have placeholders for ``day``, ``month`` (its name), ``number`` (of the month), ``year``
    and ``time``. ``day_units`` are the words for days, hours, minutes and seconds, ``bytes`` the singular and the
    plural of byte. A list in a sentence is joined by ``comma``. Only its first seven values are written; then
    ``more`` says how many are left out (``rest``) or how many there are (``all``). ``tag`` names the language.
    """

    tag: str = "en"
    group: str = ","
    point: str = "."
    months: tuple[str, ...] = (
        "Jan",
        "Feb",
        "Mar",
        "Apr",
        "May",
        "Jun",
        "Jul",
        "Aug",
        "Sep",
        "Oct",
        "Nov",
        "Dec",
    )
    date: str = "{day} {month} {year}"
    datetime: str = "{day} {month} {year}, {time}"
    day_units: tuple[str, str, str, str] = ("d", "h", "min", "s")
    yes: str = "Yes"
    no: str = "No"
    bytes: tuple[str, str] = ("byte", "bytes")
    comma: str = ", "
    more: str = " and {rest} more"


ENGLISH = Style()
CHINESE = Style(
    tag="zh-Hans",
    date="{year}年{number}月{day}日",
    datetime="{year}年{number}月{day}日 {time}",
    day_units=("天", "小时", "分", "秒"),
    yes="是",
    no="否",
    bytes=("字节", "字节"),
    comma="、",
    more="等共 {all} 项",
)


def style_for(tag: str) -> Style:
    """How a language writes values; the English style for a language that has no style here."""
    chinese = tag.lower().split("-")[0] == "zh"
    return replace(CHINESE if chinese else ENGLISH, tag=tag)


def formatted(value: Any, form: str, style: Style = ENGLISH) -> str | None:
    """A value in a format such as ``money:EUR``.

    None if the value does not fit the format, or if the text could not be read back to the same value: such a value
    is shown plain. Formats that only change the layout (``list``, ``code``, ``table``, …) give None too.
    """
    kind, _, unit = form.partition(":")
    known = _FORMATS.get(kind)
    if known is None or value is None or (isinstance(value, str) and len(value) > _LONGEST):
        return None
    try:
        text = known.write(value, unit, style)
        same = known.read(text, unit, style, value)
    except (TypeError, ValueError, OverflowError, OSError, InvalidOperation, LookupError):
        return None
    return text if same else None


def is_known(form: str) -> bool:
    """Whether a format exists and accepts its unit: in ``money:EUR``, the unit is ``EUR``."""
    kind, _, unit = form.partition(":")
    if kind in _FORMATS:
        takes = _FORMATS[kind].unit
        return not unit if takes is None else (not unit or bool(takes.fullmatch(unit)))
    return kind in LAYOUTS and (not unit or (kind == "code" and bool(_UNIT.fullmatch(unit))))


CODE = frozenset(["code", "diff", "markdown", "sql", "python", "json", "sh"])
"""Layouts of numbered lines."""
LAYOUTS = CODE | {"text", "list", "table", "secret", "object", "url", "email", "phone", "id"}
"""Formats that say how a value is laid out, and change none of its characters."""


# Numbers.


def _decimal(value: Any) -> Decimal:
    """A number, or a text with a number; raises for anything else, and for numbers with too many digits to read."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError
    number = Decimal(repr(value) if isinstance(value, float) else str(value))
    if (
        not number.is_finite()
        or abs(number.adjusted()) > _MOST_DIGITS
        or len(number.as_tuple().digits) > _MOST_DIGITS
    ):
        raise ValueError
    return number


def _written(number: Decimal, digits: int, style: Style) -> str:
    """A number with at least ``digits`` decimals, and with more if the number has more."""
    exponent = number.as_tuple().exponent
    own = -exponent if isinstance(exponent, int) and exponent < 0 else 0
    if own > digits:
        own = max(digits, len(format(number, "f").rstrip("0").partition(".")[2]))
    plain = format(number, f",.{max(own, digits)}f")
    return plain.replace(",", "\0").replace(".", style.point).replace("\0", style.group)


def _number_in(text: str, style: Style) -> Decimal:
    return Decimal(text.replace(style.group, "").replace(style.point, "."))


def _amount(value: Any, unit: str, style: Style) -> str:
    return f"{_written(_decimal(value), _minor(unit), style)} {unit}".rstrip()


def _amount_back(text: str, unit: str, style: Style, value: Any) -> bool:
    return _number_in(text.removesuffix(unit).rstrip(), style) == _decimal(value)


def _minor(unit: str) -> int:
    return _MINOR_DIGITS.get(unit, 2)


def _money(value: Any, unit: str, style: Style) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError  # minor units are whole
    digits = _minor(unit)
    return f"{_written(_decimal(value).scaleb(-digits), digits, style)} {unit}".rstrip()


def _money_back(text: str, unit: str, style: Style, value: Any) -> bool:
    return _number_in(text.removesuffix(unit).rstrip(), style).scaleb(_minor(unit)) == _decimal(value)


def _plain_number(value: Any, _unit: str, style: Style) -> str:
    if isinstance(value, str):
        raise TypeError
    return _written(_decimal(value), 0, style)


def _plain_back(text: str, _unit: str, style: Style, value: Any) -> bool:
    return _number_in(text, style) == _decimal(value)


def _percent(value: Any, unit: str, style: Style) -> str:
    return f"{_plain_number(value, unit, style)} %"


def _percent_back(text: str, unit: str, style: Style, value: Any) -> bool:
    return _plain_back(text.removesuffix(" %"), unit, style, value)


def _bytes(value: Any, _unit: str, style: Style) -> str:
    """A size in the largest unit that needs at most one decimal to be exact; else in bytes."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    for step in range(len(_SIZES), 0, -1):
        size = _decimal(value).scaleb(-3 * step).normalize()
        if abs(size) >= 1 and cast(int, size.as_tuple().exponent) >= -1:
            return f"{_written(size, 0 if size == size.to_integral() else 1, style)} {_SIZES[step - 1]}"
    return f"{_written(_decimal(value), 0, style)} {style.bytes[abs(value) != 1]}"


def _bytes_back(text: str, _unit: str, style: Style, value: Any) -> bool:
    number, _, unit = text.rpartition(" ")
    step = 0 if unit in style.bytes else _SIZES.index(unit) + 1
    return _number_in(number, style).scaleb(3 * step) == value


def _duration(value: Any, unit: str, style: Style) -> str:
    """Days, hours, minutes and seconds; fractions of a second are decimals of the seconds."""
    if isinstance(value, str):
        raise TypeError
    left = _decimal(value) * _scale(unit)
    if left < 0:
        raise ValueError
    parts: list[str] = []
    for name, word in zip(_SECONDS_OF, style.day_units, strict=True):
        count, left = divmod(left, _SECONDS_OF[name]) if name != "s" else (left, Decimal(0))
        if count:
            parts.append(f"{_written(count, 0, style)} {word}")
    return " ".join(parts) or f"0 {style.day_units[3]}"


def _duration_back(text: str, unit: str, style: Style, value: Any) -> bool:
    words = text.split(" ")
    lengths = dict(zip(style.day_units, _SECONDS_OF.values(), strict=True))
    pairs = zip(words[::2], words[1::2], strict=True)
    return sum(_number_in(count, style) * lengths[word] for count, word in pairs) == _decimal(value) * _scale(
        unit
    )


def _scale(unit: str) -> Decimal:
    return {"": Decimal(1), "s": Decimal(1), "ms": Decimal("0.001"), "min": Decimal(60), "h": Decimal(3600)}[
        unit
    ]


# Dates.


def _date(value: Any, _unit: str, style: Style) -> str:
    if not isinstance(value, str):
        raise TypeError
    return _dated(date.fromisoformat(value), style.date, "", style)


def _date_back(text: str, _unit: str, style: Style, value: Any) -> bool:
    return _day_in(text, style.date, style)[0].isoformat() == value


def _datetime(value: Any, _unit: str, style: Style) -> str:
    """A time with its seconds, their fraction and the UTC offset, as far as the value has them."""
    at = _instant(value)
    time = at.strftime("%H:%M")
    if at.second or at.microsecond:
        time += at.strftime(":%S")
    if at.microsecond:
        time += f".{at.microsecond:06d}".rstrip("0")
    if at.tzinfo is not None:
        away = cast(timedelta, at.utcoffset())
        time += " UTC" if not away else f" {_offset(away)}"
    return _dated(at.date(), style.datetime, time, style)


def _datetime_back(text: str, _unit: str, style: Style, value: Any) -> bool:
    day, time = _day_in(text, style.datetime, style)
    clock, _, zone = time.partition(" ")
    whole, _, part = clock.partition(".")
    hour, minute, *second = map(int, whole.split(":"))
    away = {"": None, "UTC": UTC}.get(zone) if zone in ("", "UTC") else _zone_in(zone)
    read = datetime(
        day.year,
        day.month,
        day.day,
        hour,
        minute,
        second[0] if second else 0,
        int(part.ljust(6, "0") or 0),
        away,
    )
    given = _instant(value)
    return (
        read == given
        and (read.tzinfo is None) == (given.tzinfo is None)
        and read.utcoffset() == given.utcoffset()
    )


def instant_of(value: Any, form: str) -> float | None:
    """The time of a value in the format ``datetime``, in seconds since 1970; None if it has no time or no UTC
    offset."""
    if form != "datetime" or formatted(value, form) is None:
        return None
    at = _instant(value)
    return None if at.tzinfo is None else at.timestamp()


def _instant(value: Any) -> datetime:
    if isinstance(value, str):
        if not _ISO.fullmatch(value):
            raise ValueError
        if (cut := re.search(r"\.(\d+)", value)) and len(cut[1]) > 6:
            raise ValueError  # finer than can be written
        return datetime.fromisoformat(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    at = datetime.fromtimestamp(value, UTC)
    if at.timestamp() != value:
        raise ValueError
    return at


def _dated(day: date, pattern: str, time: str, style: Style) -> str:
    return pattern.format(
        day=day.day, month=style.months[day.month - 1], number=day.month, year=f"{day.year:04d}", time=time
    )


def _day_in(text: str, pattern: str, style: Style) -> tuple[date, str]:
    """The date in a text of this pattern, and the text of its time."""
    names = {"day": r"(?P<day>\d{1,2})", "year": r"(?P<year>\d{4})", "time": r"(?P<time>.+)"}
    names["month"] = f"(?P<month>{'|'.join(map(re.escape, style.months))})"
    names["number"] = r"(?P<number>\d{1,2})"
    found = re.fullmatch(re.sub(r"\\?\{(\w+)\\?\}", lambda place: names[place[1]], re.escape(pattern)), text)
    if found is None:
        raise ValueError
    told = found.groupdict()
    month = int(told["number"]) if told.get("number") else style.months.index(told["month"]) + 1
    return date(int(told["year"]), month, int(told["day"])), told.get("time") or ""


def _offset(away: timedelta) -> str:
    minutes, rest = divmod(int(away.total_seconds()), 60)
    if rest or away.microseconds:
        raise ValueError
    sign = "-" if minutes < 0 else "+"
    return f"UTC{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def _zone_in(zone: str) -> timezone:
    found = re.fullmatch(r"UTC([+-])(\d\d):(\d\d)", zone)
    if found is None:
        raise ValueError
    away = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return timezone(-away if found[1] == "-" else away)


# Words.


def _bool(value: Any, unit: str, style: Style) -> str:
    if not isinstance(value, bool):
        raise TypeError
    yes, no = _yes_and_no(unit, style)
    return yes if value else no


def _bool_back(text: str, unit: str, style: Style, value: Any) -> bool:
    yes, no = _yes_and_no(unit, style)
    return yes != no and text == (yes if value else no)


def _yes_and_no(unit: str, style: Style) -> tuple[str, str]:
    yes, _, no = unit.partition(",")
    return yes or style.yes, no or style.no


def _iban(value: Any, _unit: str, _style: Style) -> str:
    if not isinstance(value, str) or not _IBAN.fullmatch(value):
        raise ValueError
    return " ".join(value[place : place + 4] for place in range(0, len(value), 4))


def _iban_back(text: str, _unit: str, _style: Style, value: Any) -> bool:
    return text.replace(" ", "") == value


@dataclass(frozen=True, slots=True)
class _Format:
    write: Callable[[Any, str, Style], str]
    read: Callable[[str, str, Style, Any], bool]
    """Whether the text, read back, is the value."""
    unit: re.Pattern[str] | None = None


_FORMATS: Mapping[str, _Format] = {
    "money": _Format(_money, _money_back, _CURRENCY),
    "amount": _Format(_amount, _amount_back, _CURRENCY),
    "number": _Format(_plain_number, _plain_back),
    "percent": _Format(_percent, _percent_back),
    "bytes": _Format(_bytes, _bytes_back),
    "duration": _Format(_duration, _duration_back, re.compile("ms|s|min|h")),
    "date": _Format(_date, _date_back),
    "datetime": _Format(_datetime, _datetime_back),
    "bool": _Format(_bool, _bool_back, _BOOL),
    "iban": _Format(_iban, _iban_back),
}
