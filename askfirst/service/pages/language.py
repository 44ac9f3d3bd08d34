"""The languages of the pages: catalogues of whole sentences, plural forms by CLDR, and the reader's choice.

A catalogue is a file ``askfirst/service/catalogues/<tag>.json``; another language is one more file. A sentence has
named placeholders, ``{agent} asks, {ago}``. A sentence that depends on a number ``n`` has a form for each plural
category.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, cast

from askfirst.errors import ServiceError
from askfirst.service.pages.inert_text import Html

Sentence = str | Mapping[str, str]
_CATALOGUES = Path(__file__).parent.parent / "catalogues"
_PLACE = re.compile(r"\{(\w+)\}")
_CHOICE = re.compile(r"([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*)(?:\s*;\s*q=([01](?:\.\d{1,3})?))?")
_LONGEST_HEADER = 400
DEFAULT = "en"
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60


# Plural categories, by the rules of the Unicode CLDR for whole numbers.


def _one_other(n: int) -> str:
    return "one" if n == 1 else "other"


def _slavic(n: int) -> str:
    if n % 10 == 1 and n % 100 != 11:
        return "one"
    return "few" if n % 10 in (2, 3, 4) and n % 100 not in (12, 13, 14) else "many"


def _polish(n: int) -> str:
    if n == 1:
        return "one"
    return "few" if n % 10 in (2, 3, 4) and n % 100 not in (12, 13, 14) else "many"


def _arabic(n: int) -> str:
    if n < 3:
        return ("zero", "one", "two")[n]
    if 3 <= n % 100 <= 10:
        return "few"
    return "many" if n % 100 >= 11 else "other"


_PLURALS: Mapping[str, Callable[[int], str]] = {
    **dict.fromkeys(("zh", "ja", "ko", "vi", "th", "id", "ms"), lambda _: "other"),
    **dict.fromkeys(("fr", "pt"), lambda n: "one" if n in (0, 1) else "other"),
    **dict.fromkeys(("ru", "uk", "be"), _slavic),
    **dict.fromkeys(("cs", "sk"), lambda n: "one" if n == 1 else "few" if n in (2, 3, 4) else "other"),
    "pl": _polish,
    "ar": _arabic,
}


@dataclass(frozen=True, slots=True)
class Language:
    """One language: its tag, as in ``lang="zh-Hans"``, and its sentences by key."""

    tag: str
    sentences: Mapping[str, Sentence]

    @property
    def name(self) -> str:
        """The language's own name for itself."""
        return self.plain("name")

    def say(self, key: str, **facts: Any) -> Html:
        """A sentence with its placeholders filled.

        Markup is inserted as it is: `Html`, and what a template has put together itself. Any other value is escaped.
        """

        def value(place: re.Match[str]) -> str:
            fact = facts[place[1]]
            return str(fact) if hasattr(fact, "__html__") else escape(self.number(fact))

        return Html(_PLACE.sub(value, escape(self._form(key, facts), quote=False)))

    def plain(self, key: str, **facts: Any) -> str:
        """A sentence as plain text, not escaped."""
        return _PLACE.sub(lambda place: self.number(facts[place[1]]), self._form(key, facts))

    def has(self, key: str) -> bool:
        """Whether the catalogue has a sentence with this key."""
        return key in self.sentences

    def number(self, value: Any) -> str:
        """A whole number with thousands separators; any other value as text."""
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

    def length(self, seconds: float) -> str:
        """A duration in its two largest units, rounded down: ``3 h 58 min``."""
        left = max(int(seconds), 0)
        days, hours, minutes = left // _DAY, left % _DAY // _HOUR, left % _HOUR // _MINUTE
        if days:
            return self.plain("time.dh", d=days, h=hours) if hours else self.plain("time.d", n=days)
        if hours:
            return self.plain("time.hm", h=hours, m=minutes) if minutes else self.plain("time.h", h=hours)
        return self.plain("time.m", m=minutes) if minutes else self.plain("time.less")

    def moment(self, at: float) -> str:
        """A time in UTC, given in seconds since 1970."""
        return self._written("time.at", at)

    def _written(self, key: str, at: float) -> str:
        time = datetime.fromtimestamp(at, UTC)
        return self.plain(
            key,
            day=time.day,
            month=self.plain(f"month.{time.month}"),
            m=time.month,
            year=str(time.year),
            clock=f"{time:%H:%M}",
        )

    def ago(self, at: float, now: float) -> str:
        """How long ago a time was; after a day, its date."""
        if now - at < _MINUTE:
            return self.plain("ago.now")
        if now - at < _DAY:
            return self.plain("ago", time=self.length(now - at))
        return self.plain("ago.at", time=self._written("time.date", at))

    def _form(self, key: str, facts: Mapping[str, Any]) -> str:
        sentence = self.sentences[key]
        if isinstance(sentence, str):
            return sentence
        count = facts["n"]
        rule = _PLURALS.get(self.tag.partition("-")[0], _one_other)
        return sentence.get(rule(count), sentence["other"])


@cache
def languages() -> Mapping[str, Language]:
    """Every language that has a catalogue, by tag."""
    read = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(_CATALOGUES.glob("*.json"))}
    return {tag: Language(tag, cast("Mapping[str, Sentence]", said)) for tag, said in read.items()}


def checked_language(tag: str) -> str:
    """The tag of a language that the pages have; raises `ServiceError` for any other."""
    if tag != DEFAULT and tag not in languages():
        raise ServiceError(f"language must be one of {', '.join(languages())}, not {tag!r}")
    return tag


def language_for(asked: str | None, accepted: str | None, otherwise: str = DEFAULT) -> Language:
    """The language of a page: what the address asks for, else the best match of ``Accept-Language``.

    A reader who wants none of the pages' languages gets the service's, ``otherwise``.
    """
    known = languages()
    if asked is not None and asked in known:
        return known[asked]
    for tag in _wished(accepted or ""):
        if found := _match(tag.lower(), known):
            return found
    return known[otherwise]


def _wished(header: str) -> list[str]:
    """The tags of an ``Accept-Language`` header, highest quality value first."""
    found = [_CHOICE.fullmatch(part.strip()) for part in header[:_LONGEST_HEADER].split(",")]
    rated = [(float(each[2] or 1), each[1]) for each in found if each is not None]
    return [tag for weight, tag in sorted(rated, key=lambda it: -it[0]) if weight > 0]


def _match(tag: str, known: Mapping[str, Language]) -> Language | None:
    """The catalogue with the same primary language as a tag.

    Traditional Chinese does not match Simplified Chinese.
    """
    if any(part in ("hant", "tw", "hk", "mo") for part in tag.split("-")):
        return None
    primary = tag.partition("-")[0]
    return next((it for name, it in known.items() if name.lower().partition("-")[0] == primary), None)
