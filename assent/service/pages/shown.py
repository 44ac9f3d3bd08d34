"""A value of JSON as a page shows it: its name, its kind, and all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assent.service.pages.passage import Html, Passage, passage


@dataclass(frozen=True, slots=True)
class Shown:
    """One named value. ``text`` is None for an empty text."""

    name: Passage
    kind: str
    text: Passage | None

    @property
    def is_code(self) -> bool:
        """Whether it is written as JSON."""
        return self.kind != "text"


def shown(name: str, value: Any) -> Shown:
    """A value under its name. A text is shown as it is, everything else as JSON."""
    if value == "":
        return Shown(_named(name), "text", None)
    return Shown(_named(name), kind_of(value), passage(text_of(value)))


def shown_all(values: Mapping[str, Any]) -> list[Shown]:
    """Every value of an object, in its order."""
    return [shown(name, value) for name, value in values.items()]


def text_of(value: Any) -> str:
    """A text as it is, everything else as JSON that spells no character differently."""
    if isinstance(value, str):
        return value
    # With an indent Python's own encoder is used, which is much slower.
    return json.dumps(value, indent=2 if isinstance(value, list | dict) else None, ensure_ascii=False)


def kind_of(value: Any) -> str:
    """What a value is, in a word."""
    if value is None:
        return "nothing"
    kinds = ((bool, "yes or no"), (int | float, "number"), (str, "text"), (list, "list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def _named(name: str) -> Passage:
    return passage(name) if name else Passage(Html("<em>no name</em>"), "")
