"""Rounds: what a new round of a case changes, and what was decided about the previous one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from askfirst.formats import style_for
from askfirst.service.case import Case
from askfirst.service.case_state import Previous
from askfirst.service.pages.decision import values_of
from askfirst.service.pages.edits import formats_of
from askfirst.service.pages.frame import moment, what_was_done
from askfirst.service.pages.inert_text import Html, Passage, marked, passage
from askfirst.service.pages.language import Language
from askfirst.service.pages.page_size import Room
from askfirst.service.pages.row import Row
from askfirst.service.pages.subject import Change, Compared, changes

_LONGEST_NAME = 300


@dataclass(frozen=True, slots=True)
class Round:
    """What changed since the previous round, and the person's note that asked for the change."""

    number: int
    """Which try this one is, counted from 1."""
    before: Html | None
    """What was decided about the previous round, by whom and when; None if nothing was."""
    note: Passage | None
    changes: list[Change]


def round_of(
    case: Case, previous: Previous | None, rows: Mapping[str, Row], room: Room, language: Language
) -> Round | None:
    """What is new in a case since its previous round; None if it is the first."""
    if previous is None:
        return None
    changed: list[Change] = []
    if previous.args is not None and (case.payload is None or case.payload.shown_call is not None):
        compared = Compared(previous.args, values_of(case), formats_of(case), "was", "")
        changed = changes(compared, room, rows, style_for(language.tag))
    note = passage(previous.note, "said", 4) if previous.note else None
    before = _decided(previous, language)
    return Round(previous.number + 1, before, note, [it for it in changed if it.changed])


def _name(name: str) -> Html:
    return Html(f"<bdi>{marked(name[:_LONGEST_NAME])}</bdi>")


def _decided(previous: Previous, language: Language) -> Html | None:
    if previous.action is None or previous.at is None:
        return None
    what = what_was_done(previous.action, language)
    if previous.is_yours:
        said = language.say("since.decided.you", what=what)
    elif previous.by is None:
        said = language.say("since.decided.link", what=what)
    else:
        said = language.say("since.decided", what=what, name=_name(previous.by))
    at = moment(previous.at, language)
    time = Html(f'<time datetime="{at.iso}">{marked(at.text)}</time>')
    return language.say("round.before", n=previous.number, said=said, time=time)
