"""The line above a notice, in our own words: who asks, and what for."""

from __future__ import annotations

from assent.delivery.base import Notice
from assent.delivery.text import cut
from assent.visible import visible

_LIMIT = 120
_WORDS = {
    "review": "{} asks for a decision",
    "reminder": "{} still waits for a decision",
    "progress": "{}: a review goes on",
    "completed": "{}: a review was decided",
    "expired": "{}: a review was not decided in time",
    "cancelled": "{}: a review was cancelled",
}


def heading(notice: Notice) -> str:
    """Such as ``books.example asks for a decision``."""
    who = cut(visible(notice.facts.get("service") or "A service"), _LIMIT)
    return _WORDS[notice.kind].format(who)
