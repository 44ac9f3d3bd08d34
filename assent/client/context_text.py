"""A case's context as text for a message, so that what is approved there stands there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

LONGEST = 3_500
"""More than this is for the page."""


def context_text(context: Any) -> str | None:
    """A line for each fact, exact; empty where there is no context, None where there is more than a message shows.

    That is a form, something that is no object, and what is too long.
    """
    if context is None or context == {}:
        return ""
    if not isinstance(context, Mapping) or "form" in context:
        return None
    facts = cast("Mapping[str, Any]", context)
    text = "\n".join(f"{_line(name)}: {_line(value)}" for name, value in facts.items())
    return text if len(text) <= LONGEST else None


def _line(value: Any) -> str:
    """A value on one line: a text as it is, unless it could be taken for something else."""
    plain = isinstance(value, str) and value.isprintable() and value == value.strip() and ": " not in value
    return value if plain and value else json.dumps(value, ensure_ascii=False)
