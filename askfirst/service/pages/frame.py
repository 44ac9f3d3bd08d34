"""The frame of a case's page: who asks, the first line, what is left, the chips, and the words on the buttons."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from askfirst.service.case import Case
from askfirst.service.pages.decision import Chip, Decision
from askfirst.service.pages.inert_text import Html, Passage, marked, passage
from askfirst.service.pages.language import Language
from askfirst.service.standing import Standing
from askfirst.visible_text import visible

_HOUR, _SOON = 3_600, 300
_LONGEST_HEADING = 240
_HEADING_LINES = 3
_ALARMING = ("production", "irreversible", "access", "data")
_COSTLY = ("money", "external", "people")
_SCRIPT_WORDS = {
    "left": "left",
    "left.approve": "left.approve",
    "left.reject": "left.reject",
    "left.abort": "left.abort",
    "left.skip": "left.skip",
    "dh": "time.dh",
    "h": "time.h",
    "hm": "time.hm",
    "m": "time.m",
    "s": "time.s",
    "sending": "send.sending",
    "still": "send.still",
    "offline": "send.offline",
    "over": "send.over",
    "changed": "live.look",
    "look": "live.looked",
    "count": "input.count",
}
Kind = Literal["", "soon", "bad", "good"]


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: ``iso`` for machines, ``text`` in UTC for people."""

    iso: str
    text: str


def moment(at: float, language: Language) -> Moment:
    """A time, given in seconds since 1970."""
    return Moment(datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), language.moment(at))


@dataclass(frozen=True, slots=True)
class Pill:
    """The state in a few words. With ``until`` a script counts down, and ``then`` is what silence means."""

    kind: Kind
    text: str
    until: int | None = None
    then: str = ""


def open_pill(case: Case, now: float, language: Language) -> Pill:
    """How long it is open, and, where that matters, what happens if nobody answers."""
    if case.never_expires:
        return Pill("", language.plain("nolimit"))
    left = case.expires_at - now
    then = case.default_action if case.default_action in ("approve", "reject", "abort") else "skip"
    key = f"left.{then}" if left < _HOUR or then == "approve" else "left"
    kind: Kind = "bad" if left < _SOON else "soon" if left < _HOUR or then == "approve" else ""
    return Pill(kind, language.plain(key, time=language.length(left)), int(case.expires_at), then)


_ENDED: dict[str, tuple[Kind, str]] = {
    "held": ("good", "pill.approved"),
    "sent": ("good", "pill.approved"),
    "running": ("good", "pill.running"),
    "done": ("good", "pill.done"),
    "failed": ("bad", "pill.failed"),
    "rejected": ("", "pill.rejected"),
    "changes_asked": ("soon", "pill.changes"),
    "answered": ("good", "pill.decided"),
    "expired": ("", "pill.expired"),
    "cancelled": ("", "pill.cancelled"),
}
_LEFT_ALONE = ("reject", "cancel", "skip", "abort")


def ended_pill(standing: Standing, language: Language) -> Pill:
    """How a case stands after somebody decided, or nobody did."""
    kind, key = _ENDED[standing.state]
    if standing.state == "held" and standing.action in _LEFT_ALONE:
        kind, key = "", "pill.rejected"
    elif standing.state in ("held", "answered") and standing.action not in ("approve", "edit"):
        key = "pill.decided"
    elif standing.state == "answered":
        key = "pill.approved"
    return Pill(kind, language.plain(key))


@dataclass(frozen=True, slots=True)
class AskerLine:
    """Who asks, for the line above the sentence. ``line`` is the catalogue's sentence for it."""

    face: Html
    name: Html
    strong: Html
    ago: Html
    under: list[Html]
    line: str


def asker_line(case: Case, decision: Decision, now: float, language: Language) -> AskerLine:
    """Who asks, when, on whose behalf, and in which thread."""
    asker = decision.asker
    unnamed = language.say("agent.some" if asker.kind == "agent" else "service.some")
    name = Html(f"<bdi>{asker.name}</bdi>") if asker.name else unnamed
    under: list[Html] = []
    if len(asker.path) > 1:
        under.append(Html(" / ".join(f"<bdi>{it}</bdi>" for it in asker.path)))
    if asker.principal:
        under.append(language.say("behalf", principal=Html(f"<bdi>{asker.principal}</bdi>")))
    if asker.thread:
        under.append(language.say("thread", name=Html(f"<bdi>{asker.thread}</bdi>")))
    line = "asker"
    if decision.doubt is not None:
        line = "asker.stopped"
    elif case.type == "escalation":
        line = "asker.stuck"
    elif not decision.sentence.is_trusted:
        line = "asker.words" if asker.kind == "service" else "asker.question"
    ago = language.ago(case.created_at, now)
    return AskerLine(
        face=_face(asker.name),
        name=name,
        strong=Html(f"<strong>{name}</strong>"),
        ago=Html(f'<span class="ago">{marked(ago)}</span>'),
        under=under,
        line=line,
    )


def _face(name: Html | None) -> Html:
    """Two letters for who asks."""
    letters = [word[:1] for word in "".join(c if c.isalnum() else " " for c in name or "").split()]
    word = "".join(letters[:2]) if len(letters) > 1 else (name or "")[:2]
    return marked(word.upper() if word.isalnum() else "?")


@dataclass(frozen=True, slots=True)
class Heading:
    """The first line. ``is_said`` where a model or a caller wrote it: it is quoted then."""

    html: Html
    is_said: bool
    below: Passage | None = None
    """The whole of it, where it is too long for a heading."""


def heading_of(case: Case, decision: Decision, asker: AskerLine, language: Language) -> Heading:
    """The decision in one sentence."""
    sentence = decision.sentence
    if decision.doubt is not None:
        said = passage(sentence.text)
        return Heading(language.say("doubt", sentence=said.label if said.is_long else sentence.html), False)
    asked = () if case.payload is None else case.payload.questions_asked
    if len(asked) > 1:
        return Heading(language.say("heading.questions", agent=asker.name, n=len(asked)), False)
    text = passage(sentence.text)
    is_long = text.characters > _LONGEST_HEADING or text.lines > _HEADING_LINES
    if sentence.is_trusted:
        return Heading(text.label if is_long else sentence.html, False, text if is_long else None)
    if is_long:
        return Heading(language.say("heading.long", agent=asker.name), False, text)
    said = Html(f'<span class="text">{text.whole}</span>')
    return Heading(language.say("quoted", words=said), True)


def tab_title(case: Case, decision: Decision, asker: AskerLine, language: Language) -> str:
    """The title of the browser's tab: a sentence that the tool's author wrote, else who asks."""
    if decision.sentence.source in ("sentence", "title"):
        return visible(decision.sentence.text)
    known = case.type if language.has(f"title.{case.type}") else "input"
    name = language.plain("agent.some" if decision.asker.kind == "agent" else "service.some")
    return language.plain(f"title.{known}", agent=name)


@dataclass(frozen=True, slots=True)
class ChipText:
    """A consequence in words; ``kind`` is its colour."""

    kind: str
    text: Html


def chip_texts(decision: Decision, language: Language) -> list[ChipText]:
    """The consequences. Red is for what cannot be undone, and only where the risk is high."""
    high = decision.risk in ("high", "critical")
    return [_chip(chip, high, language) for chip in decision.chips]


def _chip(chip: Chip, high: bool, language: Language) -> ChipText:
    kind = "bad" if chip.name in _ALARMING and high else "warn" if chip.name in _COSTLY else ""
    if chip.name == "custom":
        return ChipText(kind, chip.text or Html(""))
    if chip.name == "people":
        return ChipText(kind, language.say("people", n=chip.count or 0))
    return ChipText(kind, language.say(chip.name))


def script_words(language: Language) -> str:
    """The sentences that the page's script says, as JSON."""
    words = {name: language.sentences[key] for name, key in _SCRIPT_WORDS.items()}
    days = language.sentences["time.d"]
    words["d"] = days if isinstance(days, str) else days["other"]
    return json.dumps(words, ensure_ascii=False)


def unopened_text(decision: Decision, language: Language) -> Html | None:
    """How much of the case the page does not show, for the bar with the decision."""
    if not decision.unopened:
        return None
    lines = sum(it.last - it.first + 1 for it in decision.unopened if it.unit == "lines")
    others = any(it.unit != "lines" for it in decision.unopened)
    return language.say("unopened") if others or not lines else language.say("unopened.lines", n=lines)
