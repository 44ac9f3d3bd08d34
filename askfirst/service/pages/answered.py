"""The answer to a case as values by label, and the form fields for proofs (verification)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from askfirst.protocol import Form, FormField, sensitive_keys
from askfirst.service.case import Case
from askfirst.service.pages.choices import choices_of
from askfirst.service.pages.fields import label_of
from askfirst.service.pages.inert_text import Html, Passage, clipped, marked, passage
from askfirst.service.pages.language import Language
from askfirst.service.verification import Asked

# Fields for proofs.


@dataclass(frozen=True, slots=True)
class ProofField:
    """The field for one proof, with the address of the page where the proof is made, and the text entered so far."""

    name: str
    label: Passage
    hint: Passage | None
    url: str | None
    host: Html | None
    text: str


@dataclass(frozen=True, slots=True)
class ProofFields:
    """The fields for all proofs.

    ``possible``: whether the page can take enough proofs. ``enough`` names the sets of proofs if any one of several
    sets is enough; otherwise it is None.
    """

    fields: list[ProofField]
    required: bool
    possible: bool
    enough: Html | None


def proof_fields(asked: Asked, entered: Mapping[int, str], language: Language) -> ProofFields:
    """The fields for proofs, filled with the proofs that were entered and are not verified yet."""
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
    ways = [_joined([named[place] for place in option], "proof.and", language) for option in asked.options]
    enough = _joined(ways, "proof.or", language) if len(ways) > 1 else None
    return ProofFields(fields, asked.required, bool(asked.options), enough)


def _joined(parts: Sequence[Html], key: str, language: Language) -> Html:
    joined = parts[0]
    for part in parts[1:]:
        joined = language.say(key, one=joined, other=part)
    return joined


_PICKED = ("selected", "confirmed_items")


def answers_of(case: Case, data: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """The data of an answer as values by label, in the reader's language."""
    if case.form is not None:
        return filled_in(case, case.form, data, language)
    titles = _distinct([(choice.id, choice.name) for choice in choices_of(case)])
    return _labelled(
        (
            key,
            language.plain(f"said.{key}") if language.has(f"said.{key}") else key,
            _chosen(titles, value, language) if key in _PICKED else value,
        )
        for key, value in data.items()
    )


def filled_in(case: Case, form: Form, values: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """The values of a form by label, in the form's order. A text that says so stands for each sensitive value."""
    hidden = sensitive_keys(form)
    fields = {field.key: field for field in form.all_fields}
    not_shown = language.plain("input.notshown")
    told = [
        (key, label_of(case, field), not_shown if key in hidden else _spoken(field, values[key], language))
        for key, field in fields.items()
        if key in values
    ]
    return _labelled(told + [(key, key, value) for key, value in values.items() if key not in fields])


def _labelled(told: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
    """Values by label. If several values have the same label, the key of each is appended."""
    known = list(told)
    labels = _distinct([(key, label) for key, label, _ in known])
    return {labels[key]: value for key, _, value in known}


def questions(case: Case) -> list[str]:
    """The labels of the questions, fields or choices of a case."""
    if case.form is not None:
        asked = () if case.payload is None else case.payload.questions_asked
        return [question.prompt for question in asked] or [field.label for field in case.form.all_fields]
    return [choice.name for choice in choices_of(case)]


def _spoken(field: FormField, value: Any, language: Language) -> Any:
    """A field's value for people: the labels of the chosen options, or yes and no."""
    if isinstance(value, bool):
        return language.plain("yes" if value else "no")
    labels = _distinct([(option.value, option.label) for option in field.options or ()])
    if isinstance(value, list):
        return _chosen(labels, cast("list[Any]", value), language)
    return labels.get(value, value) if isinstance(value, str) else value


def _chosen(labels: Mapping[str, str], values: Any, language: Language) -> Any:
    """The labels of the chosen values."""
    if not isinstance(values, list):
        return values
    chosen = [str(each) for each in cast("list[Any]", values)]
    return [labels.get(each, each) for each in chosen] or language.plain("input.nothing")


def _distinct(choices: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Labels by value. If several values have the same label, the value of each is appended."""
    known = list(choices)
    times = Counter(label for _, label in known)
    return {value: label if times[label] == 1 else f"{label} ({value})" for value, label in known}


# What a further step (the second one, or that with the code) repeats of the decision that was pressed.


_MOST_TITLES = 50
_LONGEST_TITLE = 300
_LONGEST_ON_BUTTON = 32


@dataclass(frozen=True, slots=True)
class Chosen:
    """The items that were chosen: the titles of the first ones, and how many of how many."""

    titles: tuple[Html, ...]
    count: int
    of: int


def further_words(
    case: Case, action: str, data: Mapping[str, Any], words: Mapping[str, Any], language: Language
) -> dict[str, Any]:
    """The words of a further step: what was chosen, and its number or its title on the button.

    ``words`` are those of the page of the decision: see `askfirst.service.pages.frame.button_labels`.
    """
    ids = next((data[name] for name in _PICKED if isinstance(data.get(name), list)), None)
    if case.type == "escalation" and action not in ("retry", ""):  # a choice of an agent's own
        return {"chosen": None, "verb": Html(f"<bdi>{marked(action)}</bdi>")}
    titles = _distinct([(choice.id, choice.name) for choice in choices_of(case)])
    if ids is None or not titles:
        return {"chosen": None}
    names = [titles[each] for each in cast("list[str]", ids) if each in titles]
    shown = tuple(clipped(name, _LONGEST_TITLE) for name in names[:_MOST_TITLES])
    return {"chosen": Chosen(shown, len(names), len(titles))} | _verb_for(
        case, names, titles, words, language
    )


def _verb_for(
    case: Case,
    names: Sequence[str],
    titles: Mapping[str, str],
    words: Mapping[str, Any],
    language: Language,
) -> dict[str, Any]:
    template: Html | None = words["verb_template"]
    if case.type == "confirmation":
        key = "confirm.all" if len(names) == len(titles) else "confirm.n"
        ours = language.say(key, n=len(names), m=len(titles))
        means = None if words["yes_means"] is None else ours
        if template is not None:
            return {"verb": Html(template.replace("{n}", str(len(names)))), "yes_means": means}
        is_ours = words["verb"] == language.say("confirm.yes")
        return {"verb": ours if is_ours else words["verb"], "yes_means": means}
    if template is None or len(names) != 1:
        return {}
    (name,) = names
    title = name if len(name) <= _LONGEST_ON_BUTTON else f"{name[: _LONGEST_ON_BUTTON - 1]}…"
    return {"verb": Html(template.replace("{title}", marked(title)))}
