"""Wording: an author's texts for people, in one language or in several, and the choice of one for a reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

Wording = str | Mapping[str, str]
"""A text, or a text for each language by its tag: ``{"en": "Amount", "zh-Hans": "金额"}``. The first language is the
default."""
TAG = "[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}"
"""A language's tag, as a regular expression."""
MOST_LANGUAGES = 20
_TRADITIONAL = ("hant", "tw", "hk", "mo")


def wording_faults(name: str, given: Any) -> list[str]:
    """The faults of a `Wording`, each as a sentence."""
    if isinstance(given, str):
        return []
    if not isinstance(given, Mapping) or not given:
        kind = "an empty mapping" if given == {} else type(cast("object", given)).__name__
        return [
            f"{name} must be a text, or one for each language, as in {{'en': '…', 'zh-Hans': '…'}}, not {kind}"
        ]
    languages = cast("Mapping[Any, Any]", given)
    if len(languages) > MOST_LANGUAGES:
        return [f"{name} must have at most {MOST_LANGUAGES} languages"]
    faults = [
        f"{name} has the language {tag!r}; write it as a tag such as 'en' or 'zh-Hans'"
        for tag in languages
        if not isinstance(tag, str) or not re.fullmatch(TAG, tag)
    ]
    return faults + [
        f"{name} must be a text, and not empty, in the language {tag!r}"
        for tag, text in languages.items()
        if not isinstance(text, str) or not text.strip()
    ]


def texts_of(given: Wording | None) -> list[str]:
    """The texts of a wording, one for each language."""
    return [] if given is None else [given] if isinstance(given, str) else list(given.values())


def wording_in(given: Wording, tag: str | None = None) -> str:
    """The text of a wording in the language ``tag``, or in its first language if it lacks that one."""
    if isinstance(given, str):
        return given
    key = None if tag is None else matching_tag(tag, given)
    return next(iter(given.values())) if key is None else given[key]


def matching_tag(tag: str, known: Iterable[str]) -> str | None:
    """The language, among those ``known``, for a reader of ``tag``: the same one, else one that differs only in its
    region.

    Simplified and Traditional Chinese do not serve each other's readers.
    """
    wanted, tags = tag.lower(), list(known)
    if (same := next((it for it in tags if it.lower() == wanted), None)) is not None:
        return same
    return next((it for it in tags if _written_in(it) == _written_in(tag)), None)


def _written_in(tag: str) -> tuple[str, bool]:
    """The language of a tag, and whether the tag means traditional Chinese characters."""
    primary, *more = tag.lower().split("-")
    return primary, any(it in _TRADITIONAL for it in more)


def languages_of(*given: Wording | None) -> list[str]:
    """All languages in which at least one of the wordings is given."""
    tags = [tag for it in given if it is not None and not isinstance(it, str) for tag in it]
    return list(dict.fromkeys(tags))


# The words of an action, as its request stores them.


IN_LANGUAGES = "in"
"""The key in stored words for other languages: by tag, the words that differ from those of the default language."""


def in_languages(words: dict[str, Any], others: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Words to be stored: those of the default language, and by language the words that differ from them."""
    differing = {
        tag: {name: said.get(name) for name in {**words, **said} if said.get(name) != words.get(name)}
        for tag, said in others.items()
    }
    kept: dict[str, Any] = {tag: said for tag, said in differing.items() if said}
    return {**words, IN_LANGUAGES: kept} if kept else words


def words_in(words: Mapping[str, Any], tag: str | None) -> dict[str, Any]:
    """Stored words in the language of a reader; in their default language if they lack that one."""
    plain: dict[str, Any] = {name: said for name, said in words.items() if name != IN_LANGUAGES}
    given: Any = words.get(IN_LANGUAGES)
    known = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    key = None if tag is None else matching_tag(tag, known)
    said: Any = None if key is None else known[key]
    if isinstance(said, dict):
        plain |= cast("dict[str, Any]", said)
    return {name: it for name, it in plain.items() if it is not None}
