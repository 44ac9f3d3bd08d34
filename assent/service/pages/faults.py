"""What is wrong with an answer, as the list at the top of a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assent.service.pages.passage import Html, Passage, marked

_OURS = {
    "feedback": "Your note",
    "reason": "Your note",
    "note": "Your note",
    "selected": "Your choice",
    "confirmed_items": "Your choice",
    "response": "Your answer",
    "modified_params": "Changed parameters",
    "edits": "Your changes",
    "email_code": "Your code",
    "proof": "Your proof",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: the field it is about, with the place to go to, and the sentence."""

    sentence: str
    label: Html | None = None
    place: str | None = None


def without_prefix(faults: Mapping[str, str]) -> dict[str, str]:
    """Faults by key of the answer's data."""
    return {key.removeprefix("data.") if key != "data" else "": fault for key, fault in faults.items()}


def listed(faults: Mapping[str, str], places: Mapping[str, tuple[str, Html]]) -> list[Problem]:
    """Every fault, each with its field where the page has it."""
    return [_problem(key, fault, places) for key, fault in faults.items()]


def brief(label: Passage) -> Html:
    """A label, or how it begins; all of it stands at the field."""
    return label.whole if label.beginning is None else Html(f"{label.beginning} …")


def _problem(key: str, fault: str, places: Mapping[str, tuple[str, Html]]) -> Problem:
    if key in places:
        place, label = places[key]
        return Problem(fault, label, place)
    if key in _OURS:
        return Problem(fault, Html(_OURS[key]), key)
    return Problem(fault, marked(key.partition(".")[2] or key) if key not in ("", "action") else None)
