"""How long a case stays open: ISO 8601 durations and short forms, as whole seconds."""

import re
from decimal import Decimal

from assent.errors import InvalidDuration

_SECONDS = {"W": 604_800, "D": 86_400, "H": 3_600, "M": 60, "S": 1}
_NUMBER = r"[0-9]{1,12}(?:[.,][0-9]{1,12})?"
_SHORT = re.compile(r"([0-9]{1,12})([wdhms])")
_ISO = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_CALENDAR = re.compile(r"P[^T]*[0-9][YM].*")

LONGEST = 100 * 365 * 86_400
"""A longer duration is a mistake; the date at its end may not even exist."""


def parse_duration(text: str) -> int:
    """The seconds of ``"PT24H"``, ``"P7D"``, ``"P1DT12H"``, or short: ``"24h"``, ``"7d"``, ``"30m"``.

    Raises `InvalidDuration` with the reason; years and months are refused, because they vary.
    """
    short = _SHORT.fullmatch(text)
    if short:
        return _positive(text, Decimal(int(short[1]) * _SECONDS[short[2].upper()]))
    iso = _ISO.fullmatch(text)
    if not iso or not any(iso.groups()):
        if _CALENDAR.fullmatch(text):
            raise InvalidDuration(text, "years and months have no fixed length; give days or hours")
        raise InvalidDuration(text, "write it as ISO 8601, such as PT24H or P7D, or short, such as 24h or 7d")
    given = [
        (part.replace(",", "."), unit) for part, unit in zip(iso.groups(), _SECONDS, strict=True) if part
    ]
    if any("." in part for part, _ in given[:-1]):
        raise InvalidDuration(text, "only its last number may have a fraction")
    return _positive(text, sum((Decimal(part) * _SECONDS[unit] for part, unit in given), Decimal()))


def iso_duration(seconds: int) -> str:
    """Seconds as an ISO 8601 duration: ``"PT12H"``, ``"P7D"``, ``"P1DT6H"``."""
    days, rest = divmod(_positive(str(seconds), Decimal(seconds)), 86_400)
    hours, rest = divmod(rest, 3_600)
    clock = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (rest // 60, "M"), (rest % 60, "S")) if n)
    return "P" + (f"{days}D" if days else "") + (f"T{clock}" if clock else "")


def short_duration(seconds: int) -> str:
    """Seconds in the short form, in the largest unit that fits: ``"12h"``, ``"7d"``, ``"90m"``."""
    _positive(str(seconds), Decimal(seconds))
    unit = next(unit for unit in "DHMS" if seconds % _SECONDS[unit] == 0)
    return f"{seconds // _SECONDS[unit]}{unit.lower()}"


def _positive(text: str, seconds: Decimal) -> int:
    if seconds <= 0:
        raise InvalidDuration(text, "it must be longer than nothing")
    if seconds != int(seconds):
        raise InvalidDuration(text, "it must come to whole seconds")
    if seconds > LONGEST:
        raise InvalidDuration(text, "it must be at most 100 years")
    return int(seconds)
