"""The page of a case that has ended or whose decision is held: its heading, its timeline and the tool's result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from askfirst.service.case import Case
from askfirst.service.case_state import CaseState, Trail
from askfirst.service.pages.decision import ACTING
from askfirst.service.pages.frame import (
    AskerLine,
    Heading,
    Moment,
    moment,
    own_action,
    silence_of,
    time_ago,
    what_was_done,
)
from askfirst.service.pages.inert_text import Html, Passage, clipped, marked, passage
from askfirst.service.pages.language import Language
from askfirst.service.pages.sight import Sight

_RESULT_LINES = 12
_NO_KINDS = ("expired", "cancelled", "done", "failed", "other")
"""Endings that are not decisions. A caller's own action of such a name must not get their sentence."""
_SINCE = {"sent": "since.waiting", "running": "since.running", "done": "since.done", "failed": "since.failed"}
_LOST = {"expired": "notice.toolate", "cancelled": "notice.toolate"}
"""The sentence for a held decision that did not count, if no other answer counts in its place."""


@dataclass(frozen=True, slots=True)
class Event:
    """One point of the timeline."""

    said: Html
    at: Moment | None = None
    small: Html | None = None
    is_failure: bool = False
    now: bool = False


@dataclass(frozen=True, slots=True)
class HeldText:
    """A decision that is held: it is sent at ``until`` and can be undone before."""

    text: Html
    until: float
    may_undo: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What the tool returned or its error, folded after twelve lines, and how to undo it, in its author's words."""

    failed: bool
    text: Passage | None
    rest: Passage | None
    is_cut: bool
    undo: Html | None


def ended_heading(
    case: Case, sight: Sight, heading: Heading, now: float, language: Language, done: Html | None
) -> Html:
    """The end in one line: what ran, else who decided what. In the browser that decided it begins with "You".

    ``done`` is what the tool's author says once the call ran. An unverified name is not in the heading.
    """
    standing = sight.standing
    if standing.state == "done" and done is not None:
        return done
    what = heading.html
    if sight.decision.doubt is not None and standing.state not in ("expired", "cancelled"):
        # Somebody has decided, so the heading no longer says that the call is in doubt.
        what = sight.decision.sentence.html
        if is_found(standing):
            return language.say("ended.found", found=language.say(f"doubt.{standing.action}"), what=what)
    kind = _kind(case, standing)
    is_failed = standing.state == "failed" and not _is_stuck(standing)
    if kind != "declined" and (standing.state in ("expired", "cancelled", "done") or is_failed):
        return language.say(f"ended.{standing.state}", what=what)
    if standing.is_yours and language.has(f"you.{kind}"):
        return language.say(f"you.{kind}", what=what)
    known_at = None if standing.is_claimed or standing.state == "held" else standing.at
    if standing.by and known_at is not None and language.has(f"other.{kind}"):
        name, ago = Html(f"<bdi>{marked(standing.by)}</bdi>"), time_ago(known_at, now, language)
        return language.say(f"other.{kind}", name=name, ago=ago, what=what)
    if language.has(f"ended.{kind}") and kind not in _NO_KINDS:
        return language.say(f"ended.{kind}", what=what)
    return language.say("ended.other", action=own_action(standing.action, language), what=what)


def is_found(standing: CaseState) -> bool:
    """Whether the decision about a call in doubt, held or not, is what the person found: it is not run again."""
    return standing.state in ("held", "rejected") and standing.action in ("skip", "abort")


def _kind(case: Case, standing: CaseState) -> str:
    """The decision as the catalogue names it: the action, or what the action means here."""
    if is_declined(case):
        return "declined"
    if is_other_try(case, standing):
        return "changes"
    return standing.action or ""


def _is_stuck(standing: CaseState) -> bool:
    """Whether the decision counts, but its continuation failed."""
    return standing.goes_on is not None and standing.goes_on.state == "failed"


def _asks_again(case: Case, standing: CaseState) -> bool:
    return standing.action == "edit" and "edits" not in (data_of(case) or {})


def is_declined(case: Case) -> bool:
    """Whether a person declined the case (cannot answer, or none of these), also while that is held."""
    return case.declined_by is not None or data_of(case).get("declined") is True


def is_other_try(case: Case, standing: CaseState) -> bool:
    """Whether the decision, held or not, asks for another try."""
    return standing.state == "changes_asked" or _asks_again(case, standing)


def data_of(case: Case) -> dict[str, Any]:
    """The data of the answer, or of the decision that is held."""
    if case.held is not None and not case.is_final:
        return dict(case.held.data)
    result: dict[str, Any] = dict(case.result or {})
    return dict(result.get("data") or {})


def held_text(standing: CaseState, now: float, language: Language) -> HeldText | None:
    """The text about a held decision, and whether this browser may undo it; None if none is held."""
    if standing.state != "held" or standing.held_until is None:
        return None
    left = max(round(standing.held_until - now), 0)
    count = Html(f"<span data-left>{left}</span>")  # a script counts it down
    if standing.is_yours:
        text = language.say("held", s=count) if left else language.say("held.soon")
    else:
        name = Html(f"<bdi>{marked(standing.by)}</bdi>") if standing.by else language.say("somebody")
        key = f"held.other.{standing.action}"
        text = language.say(key if language.has(key) else "held.other", name=name, s=count)
    return HeldText(text, standing.held_until, standing.is_yours)


def told(case: Case, standing: CaseState, language: Language) -> list[Html]:
    """Further sentences about the end: first that a held decision did not count, then what follows from the end."""
    lost = [] if standing.lost is None else [language.say(_LOST.get(standing.state, "notice.late"))]
    return [*lost, *_told_of_end(case, standing, language)]


def _told_of_end(case: Case, standing: CaseState, language: Language) -> list[Html]:
    if standing.state == "expired":
        again = [] if silence_of(case) == "approve" else [language.say("told.expired")]
        return [language.say(f"expired.{silence_of(case)}"), *again]
    if standing.state == "failed":
        return [language.say("told.stuck" if _is_stuck(standing) else "told.failed")]
    if standing.state == "changes_asked":
        return [] if standing.has_next else [language.say("told.changes")]
    is_refused = standing.state == "rejected" and standing.action == "reject"
    if case.request is not None and (is_refused or case.declined_by is not None):
        return [language.say("told.reject")]
    return []


def result_of(standing: CaseState, undo: Html | None) -> Result | None:
    """The tool's result with its undo text once the tool ran; the error if it failed."""
    outcome = standing.outcome
    if outcome is None or outcome.state not in ("done", "failed"):
        return None
    failed = outcome.state == "failed"
    undo = None if failed else undo
    if not outcome.text:
        return None if undo is None else Result(failed, None, None, False, undo)
    lines = outcome.text.split("\n")
    rest = "\n".join(lines[_RESULT_LINES:])
    text = passage("\n".join(lines[:_RESULT_LINES]))
    return Result(failed, text, passage(rest) if rest else None, outcome.is_cut, undo)


def undo_of(case: Case, standing: CaseState, undo: Html | None) -> Html | None:
    """How to undo what a service asked for and somebody approved, in the service's words.

    For a call, the text is part of the call's `Result`.
    """
    acted = standing.state == "answered" and standing.action in ACTING.get(case.type, ("submit",))
    return undo if acted and case.request is None and not data_of(case).get("declined") else None


def timeline(case: Case, sight: Sight, asker: AskerLine, language: Language) -> list[Event]:
    """The timeline of the case: asked, opened, undone, decided by whom and how that is known, ran.

    The last event is marked as the current one.
    """
    standing, trail = sight.standing, sight.trail or Trail()
    events = [Event(language.say("since.asked", agent=asker.name), moment(case.created_at, language))]
    if case.opened_at is not None:
        events.append(Event(language.say("since.opened"), moment(case.opened_at, language)))
    events += [Event(language.say("since.undone"), moment(it, language)) for it in trail.undone_at]
    at = None if standing.at is None else moment(standing.at, language)
    if standing.state == "expired":
        events.append(
            Event(language.say("since.expired"), moment(case.ended_at or case.expires_at, language))
        )
    elif standing.state == "cancelled" and case.declined_by is None:
        events.append(Event(_withdrawn(trail, asker, language), at))
    else:
        events.append(Event(_decided(case, standing, trail, language), at))
    events += _afterwards(standing, language)
    return [*events[:-1], replace(events[-1], now=True)]


def _decided(case: Case, standing: CaseState, trail: Trail, language: Language) -> Html:
    kind = _kind(case, standing)
    what = what_was_done(kind, language)
    if standing.by is None:
        return language.say(f"since.decided.{'you' if standing.is_yours else 'link'}", what=what)
    name = Html(f"<bdi>{marked(standing.by)}</bdi>")
    if standing.is_claimed:
        return language.say("since.claimed", what=what, name=name)
    if trail.known_by is None:
        return language.say("since.decided", what=what, name=name)
    if language.has(known := f"since.decided.{trail.known_by}"):
        return language.say(known, what=what, name=name)
    place = Html(f"<bdi>{marked(trail.known_by.capitalize())}</bdi>")
    return language.say("since.decided.messenger", what=what, name=name, place=place)


def _time(at: float, language: Language) -> Html:
    it = moment(at, language)
    return Html(f'<time datetime="{it.iso}">{marked(it.text)}</time>')


def _withdrawn(trail: Trail, asker: AskerLine, language: Language) -> Html:
    """Who withdrew the request: whoever asked, or the actor of the audit trail's row."""
    if trail.is_askers:
        return language.say("since.cancelled.by", name=asker.name)
    if trail.actor is None:
        return language.say("since.cancelled")
    return language.say("since.cancelled.by", name=Html(f"<bdi>{clipped(trail.actor)}</bdi>"))


def _afterwards(standing: CaseState, language: Language) -> list[Event]:
    if standing.state in _SINCE and standing.outcome is not None and not _is_stuck(standing):
        small = language.say("since.live") if standing.state in ("sent", "running") else None
        at = moment(standing.outcome.since, language)
        return [Event(language.say(_SINCE[standing.state]), at, small, standing.state == "failed")]
    goes_on = standing.goes_on
    if goes_on is None:
        return []
    at = moment(goes_on.updated_at, language)
    if goes_on.state == "failed":
        error = Html(f"<bdi>{marked(goes_on.error or '')}</bdi>")
        later = (
            language.say("since.operator")
            if goes_on.next_at is None
            else language.say("since.next", time=_time(goes_on.next_at, language))
        )
        return [
            Event(language.say("since.stuck", error=error, n=goes_on.attempts), at, later, is_failure=True)
        ]
    key = {"due": "since.due", "running": "since.running", "done": "since.went"}[goes_on.state]
    return [Event(language.say(key), at)]
