"""The page of a case that somebody decided, or nobody did: its heading, its timeline, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from askfirst.service.case import Case
from askfirst.service.pages.frame import AskerLine, Heading, Moment, moment
from askfirst.service.pages.inert_text import Html, Passage, marked, passage
from askfirst.service.pages.language import Language
from askfirst.service.standing import Standing

_WITHOUT_EFFECT = ("reject", "cancel", "skip", "abort")
_SINCE = {"sent": "since.waiting", "running": "since.running", "done": "since.done", "failed": "since.failed"}


@dataclass(frozen=True, slots=True)
class Event:
    """One point of the timeline."""

    said: Html
    at: Moment | None = None
    small: Html | None = None
    now: bool = False


@dataclass(frozen=True, slots=True)
class HeldText:
    """A decision that goes out in a moment."""

    text: Html
    until: float
    may_undo: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool returned, and how its author says that it is undone."""

    text: Passage | None
    undo: Html | None


def ended_heading(case: Case, standing: Standing, heading: Heading, language: Language) -> Html:
    """What was decided, in one line; "You ..." in the browser that decided."""
    if standing.state in ("expired", "cancelled"):
        return language.say(f"ended.{standing.state}", what=heading.html)
    action = standing.action or ""
    kind = "changes" if standing.state == "changes_asked" or _asks_again(case, standing) else action
    if data_of(case).get("declined") is True:
        kind = "declined"
    if standing.is_yours and language.has(f"you.{kind}"):
        return language.say(f"you.{kind}", what=heading.html)
    if language.has(f"ended.{kind}") and kind not in ("expired", "cancelled", "other"):
        return language.say(f"ended.{kind}", what=heading.html)
    return language.say("ended.other", action=Html(f"<bdi>{marked(action)}</bdi>"), what=heading.html)


def _asks_again(case: Case, standing: Standing) -> bool:
    return standing.action == "edit" and "edits" not in (data_of(case) or {})


def data_of(case: Case) -> dict[str, Any]:
    """The data of the answer, or of the decision that is held."""
    if case.held is not None and not case.is_final:
        return dict(case.held.data)
    result: dict[str, Any] = dict(case.result or {})
    return dict(result.get("data") or {})


def held_text(standing: Standing, now: float, language: Language) -> HeldText | None:
    """What is said of a decision that is held, and whether this browser may undo it."""
    if standing.state != "held" or standing.held_until is None:
        return None
    left = max(round(standing.held_until - now), 0)
    count = Html(f"<span data-left>{left}</span>")  # a script counts it down
    if standing.is_yours:
        text = language.say("held", s=count) if left else language.say("held.soon")
    else:
        name = Html(f"<bdi>{marked(standing.by)}</bdi>") if standing.by else language.say("somebody")
        text = language.say("held.other", name=name, s=count)
    return HeldText(text, standing.held_until, standing.is_yours)


def told(case: Case, standing: Standing, language: Language) -> list[Html]:
    """What else a person wants to know: what silence meant, or what the agent does now."""
    if standing.state == "expired":
        return [language.say(f"expired.{_default(case)}")]
    if standing.state == "changes_asked":
        return [] if standing.has_next else [language.say("told.changes")]
    if standing.state == "rejected" and standing.action == "reject" and case.request is not None:
        return [language.say("told.reject")]
    if standing.lost is not None:
        return [language.say("notice.late")]
    return []


def _default(case: Case) -> str:
    return case.default_action if case.default_action in ("approve", "reject", "abort") else "skip"


def result_of(standing: Standing, undo: Html | None) -> Result | None:
    """The result's text and the tool's undo, once it ran or failed."""
    if standing.outcome is None or standing.outcome.state not in ("done", "failed"):
        return None
    text = passage(standing.outcome.text) if standing.outcome.text else None
    return None if text is None and undo is None else Result(text, undo)


def timeline(case: Case, standing: Standing, asker: AskerLine, now: float, language: Language) -> list[Event]:
    """What happened: asked, opened, decided, ran."""
    events = [Event(language.say("since.asked", agent=asker.name), moment(case.created_at, language))]
    if case.opened_at is not None:
        events.append(Event(language.say("since.opened"), moment(case.opened_at, language)))
    at = None if standing.at is None else moment(standing.at, language)
    if standing.state == "expired":
        events.append(
            Event(language.say("since.expired"), moment(case.ended_at or case.expires_at, language))
        )
    elif standing.state == "cancelled":
        events.append(Event(language.say("since.cancelled"), at))
    else:
        events.append(Event(_decided(case, standing, language), at))
    events += _afterwards(standing, language)
    last = events[-1]
    return [*events[:-1], Event(last.said, last.at, last.small, now=True)]


def _decided(case: Case, standing: Standing, language: Language) -> Html:
    kind = "changes" if _asks_again(case, standing) else standing.action or ""
    kind = "declined" if data_of(case).get("declined") is True else kind
    what = (
        language.say(f"did.{kind}")
        if language.has(f"did.{kind}")
        else Html(f"<bdi>{marked(standing.action or '')}</bdi>")
    )
    if standing.by is None:
        return language.say("since.decided.link", what=what)
    name = Html(f"<bdi>{marked(standing.by)}</bdi>")
    return language.say("since.claimed" if standing.is_claimed else "since.decided", what=what, name=name)


def _afterwards(standing: Standing, language: Language) -> list[Event]:
    if standing.state in _SINCE and standing.outcome is not None:
        small = language.say("since.live") if standing.state in ("sent", "running") else None
        at = None if small else moment(standing.outcome.since, language)
        return [Event(language.say(_SINCE[standing.state]), at, small)]
    goes_on = standing.goes_on
    if goes_on is None:
        return []
    at = moment(goes_on.updated_at, language)
    if goes_on.state == "failed":
        error = Html(f"<bdi>{marked(goes_on.error or '')}</bdi>")
        later = (
            language.say("since.operator")
            if goes_on.next_at is None
            else language.say("since.next", time=language.moment(goes_on.next_at))
        )
        small = Html(f"{later}. {language.say('since.kept')}")
        return [Event(language.say("since.stuck", error=error, n=goes_on.attempts), None, small)]
    key = {"due": "since.due", "running": "since.running", "done": "since.went"}[goes_on.state]
    return [Event(language.say(key), at)]
