"""The faults of an answer as whole sentences in the reader's language."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askfirst.service.pages.inert_text import Html
from askfirst.service.pages.language import DEFAULT, Language, languages

_KNOWN: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern), key)
    for pattern, key in (
        (r"is required|is missing|an answer is required", "fault.required"),
        (r"must be a number|is a number", "fault.number"),
        (r"must be a whole number", "fault.whole"),
        (r"must be at least (?P<n>\S+)", "fault.least"),
        (r"must be at most (?P<n>\S+)", "fault.most"),
        (r"must have at least (?P<n>\d+) characters?", "fault.longer"),
        (r"(?:must have|has) at most (?P<n>\d+) characters?", "fault.shorter"),
        (r"does not have the expected form", "fault.form"),
        (r"must be an e-mail address", "fault.email"),
        (r"must be an address that begins with https:// or http://", "fault.url"),
        (r"must be a date such as .*", "fault.date"),
        (r"is no day of the calendar", "fault.calendar"),
        (r"must be one of the options|must be options only|must be a list of options", "fault.option"),
        (r"needs a choice", "fault.choice"),
        (r"takes one choice", "fault.one"),
        (r"must be true or false|is true or false", "fault.bool"),
        (r"is not JSON", "fault.json"),
        (r"must be text|is text", "fault.text"),
    )
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in the list at the top of a page: a sentence with the field's label, and the field's anchor."""

    said: Html
    place: str | None = None


class Said(str):
    """A sentence about a fault, with its key in the catalogue. The sentence ``{key}.at`` also names the field."""

    __slots__ = ("facts", "key")

    key: str
    facts: Mapping[str, Any]


def sentence(language: Language, fault: str) -> str:
    """A fault as a whole sentence. A fault that the catalogue does not have stays in English."""
    for pattern, key in _KNOWN:
        if match := pattern.fullmatch(fault):
            facts = {name: _number(text) for name, text in match.groupdict().items()}
            said = Said(language.plain(key, **facts))
            said.key, said.facts = key, facts
            return said
    known = _sentences().get(fault)
    if known is not None:
        return language.plain(known)
    return fault if fault[:1] == fault[:1].upper() else language.plain("fault.other", fault=fault)


def sentences(language: Language, faults: Mapping[str, str]) -> dict[str, str]:
    """Every fault as a sentence, by the key of the answer's data that it is about."""
    return {_key(key): sentence(language, fault) for key, fault in faults.items()}


def listed(
    language: Language, faults: Mapping[str, str], places: Mapping[str, tuple[str, Html]]
) -> list[Problem]:
    """Every fault with a link to its field, if the page has that field. ``faults`` are sentences already."""
    return [_problem(language, key, said, places) for key, said in faults.items()]


def _problem(language: Language, key: str, said: str, places: Mapping[str, tuple[str, Html]]) -> Problem:
    if key in places:
        place, label = places[key]
        if isinstance(said, Said) and language.has(f"{said.key}.at"):
            named = Html(f"<bdi>{label}</bdi>")
            return Problem(language.say(f"{said.key}.at", label=named, **said.facts), place)
        return Problem(language.say("problem.at", label=Html(f"<bdi>{label}</bdi>"), sentence=said), place)
    if language.has(f"field.{key}"):
        return Problem(language.say("problem.at", label=language.say(f"field.{key}"), sentence=said), key)
    return Problem(language.say("problem.plain", sentence=said))


def _key(key: str) -> str:
    return key.removeprefix("data.") if key != "data" else ""


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _sentences() -> dict[str, str]:
    """Catalogue keys of the faults that are whole sentences already, by their English text."""
    known = languages()[DEFAULT].sentences
    return {said: key for key, said in known.items() if key.startswith("fault.") and isinstance(said, str)}
