"""How an action is shown to people: the words that its author wrote, with the values of the call in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

from askfirst.errors import InvalidTool
from askfirst.messages import JsonObject
from askfirst.visible_text import visible

Risk = Literal["low", "normal", "high", "critical"]
RISKS: tuple[Risk, ...] = ("low", "normal", "high", "critical")
_PLACE = re.compile(r"\{([A-Za-z_]\w*)((?::[\w,.-]+)*)\}")
_LONGEST_VALUE = 60
_LONGEST_BUTTON = 24
_UNITS = ("bytes", "KB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The words for an action. None of them comes from a model.

    ``sentence`` and ``approve`` (the button) may hold arguments, with a format: ``{cents:money:EUR}``. ``risk`` is
    a level, or a function of the arguments that gives one. ``labels`` and ``formats`` are by argument.
    """

    title: str | None = None
    sentence: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    formats: Mapping[str, str] = field(default_factory=dict[str, str])
    risk: Risk | Callable[[Mapping[str, Any]], Risk] = "normal"
    consequences: Sequence[str] = ()
    approve: str | None = None
    undo: str | None = None

    def check(self, tool_name: str, parameters: Sequence[str]) -> None:
        """Raise `InvalidTool` for words about arguments that the tool does not have, and for an unknown risk."""
        for name, words in (("sentence", self.sentence), ("approve", self.approve)):
            for place in _PLACE.finditer(words or ""):
                if place[1] not in parameters:
                    known = ", ".join(parameters) or "none"
                    raise InvalidTool(tool_name, f"{name} names {place[1]!r}, and its arguments are: {known}")
        for name, given in (("labels", self.labels), ("formats", self.formats)):
            for key in given:
                if key not in parameters:
                    known = ", ".join(parameters) or "none"
                    raise InvalidTool(tool_name, f"{name} has {key!r}, and its arguments are: {known}")
        if not callable(self.risk) and self.risk not in RISKS:
            raise InvalidTool(tool_name, f"risk is one of {', '.join(RISKS)}, not {self.risk!r}")

    def shown(self, args: Mapping[str, Any]) -> JsonObject | None:
        """The words for a call with these arguments, for its request; None if nothing was said.

        A risk that cannot be determined is ``"critical"``, so that people look twice.
        """
        words: JsonObject = {}
        for name in ("title", "undo"):
            if (said := getattr(self, name)) is not None:
                words[name] = said
        if self.sentence is not None:
            words["sentence"] = filled(self.sentence, args, self.formats)
        if self.approve is not None:
            button = filled(self.approve, args, self.formats)
            if len(button) <= _LONGEST_BUTTON:
                words["approve"] = button
        if self.labels:
            words["labels"] = dict(self.labels)
        if self.formats:
            words["formats"] = dict(self.formats)
        if self.consequences:
            words["consequences"] = list(self.consequences)
        risk = self._risk(args)
        if risk != "normal":
            words["risk"] = risk
        return words or None

    def _risk(self, args: Mapping[str, Any]) -> Risk:
        if not callable(self.risk):
            return self.risk
        try:
            said = self.risk(args)
        except Exception:
            return "critical"
        return said if said in RISKS else "critical"


def filled(words: str, args: Mapping[str, Any], formats: Mapping[str, str]) -> str:
    """A template with the call's values in its places, each made safe to look at and cut to 60 characters."""

    def value(place: re.Match[str]) -> str:
        name, form = place[1], place[2].removeprefix(":") or formats.get(place[1], "")
        shown = visible(formatted(args.get(name), form))
        return shown if len(shown) <= _LONGEST_VALUE else f"{shown[: _LONGEST_VALUE - 1]}…"

    return _PLACE.sub(value, words)


def formatted(value: Any, form: str) -> str:
    """A value as text, in a format such as ``money:EUR``; one that does not fit the format is shown plain."""
    kind, _, unit = form.partition(":")
    try:
        return _FORMATS[kind](value, unit) if kind in _FORMATS and value is not None else _plain(value)
    except (TypeError, ValueError, OverflowError, OSError):
        return _plain(value)


def _plain(value: Any) -> str:
    if value is None:
        return "–"  # noqa: RUF001  (a dash: not given)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, list):
        items = [_plain(it) for it in cast("list[Any]", value)]
        return ", ".join(items[:7]) + (f" and {len(items) - 7} more" if len(items) > 7 else "")
    return str(value)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return value


def _money(value: Any, unit: str) -> str:
    minor = _number(value)
    if isinstance(minor, float):
        raise TypeError  # minor units are whole
    sign, minor = ("-" if minor < 0 else ""), abs(minor)
    return f"{sign}{minor // 100:,}.{minor % 100:02d} {unit}".rstrip()


def _date(value: Any, form: str) -> str:
    at = (
        datetime.fromisoformat(value)
        if isinstance(value, str)
        else datetime.fromtimestamp(_number(value), UTC)
    )
    return at.strftime(form).lstrip("0")


def _duration(value: Any, _unit: str) -> str:
    seconds = round(_number(value))
    parts = [
        (seconds // 86_400, "d"),
        (seconds // 3600 % 24, "h"),
        (seconds // 60 % 60, "min"),
        (seconds % 60, "s"),
    ]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"


def _bytes(value: Any, _unit: str) -> str:
    size, step = float(_number(value)), 0
    while abs(size) >= 1000 and step < len(_UNITS) - 1:
        size, step = size / 1000, step + 1
    return f"{size:.0f} {_UNITS[step]}" if step == 0 else f"{size:.1f} {_UNITS[step]}"


def _bool(value: Any, unit: str) -> str:
    if not isinstance(value, bool):
        raise TypeError
    on, _, off = unit.partition(",")
    return (on or "Yes") if value else (off or "No")


_FORMATS: Mapping[str, Callable[[Any, str], str]] = {
    "money": _money,
    "amount": lambda value, unit: f"{_number(value):,.2f} {unit}".rstrip(),
    "date": lambda value, _: _date(value, "%d %b %Y"),
    "datetime": lambda value, _: _date(value, "%d %b %Y, %H:%M"),
    "duration": _duration,
    "bytes": _bytes,
    "percent": lambda value, _: f"{_number(value):g} %",
    "number": lambda value, _: f"{_number(value):,}",
    "bool": _bool,
}
