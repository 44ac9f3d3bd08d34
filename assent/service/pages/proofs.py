"""The proofs that a page asks for: a field for each, and which of them are enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from assent.service.pages.passage import Html, Passage, marked, passage
from assent.service.verification import Asked


@dataclass(frozen=True, slots=True)
class ProofField:
    """The field of one proof, with where it is made and what stands in it now."""

    name: str
    label: Passage
    hint: Passage | None
    url: str | None
    host: Html | None
    text: str


@dataclass(frozen=True, slots=True)
class ProofFields:
    """All of them. ``enough`` names the sets of which one will do, where there are several."""

    fields: list[ProofField]
    required: bool
    possible: bool
    enough: list[Html]


def proof_fields(asked: Asked | None, entered: Mapping[int, str]) -> ProofFields | None:
    """The fields, filled with what was entered and not looked at yet; None if nothing is asked for."""
    if asked is None:
        return None
    fields = [
        ProofField(
            name=f"proof.{place}",
            label=passage(it.label),
            hint=passage(it.hint) if it.hint else None,
            url=it.url,
            host=marked(urlsplit(it.url).netloc) if it.url else None,
            text=entered.get(place, ""),
        )
        for place, it in asked.challenges.items()
    ]
    named = {place: marked(it.label) for place, it in asked.challenges.items()}
    several = len(asked.options) > 1
    enough = [Html(" and ".join(named[place] for place in option)) for option in asked.options]
    return ProofFields(fields, asked.required, bool(asked.options), enough if several else [])
