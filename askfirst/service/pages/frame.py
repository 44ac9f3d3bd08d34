"""The frame of a case's page: who asks, the heading, the state and time left, the chips, and the script's texts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from askfirst.service.case import Case
from askfirst.service.case_state import CaseState, Step
from askfirst.service.pages.choices import choices_of
from askfirst.service.pages.decision import Chip, Decision
from askfirst.service.pages.inert_text import Html, Passage, clipped, marked, passage
from askfirst.service.pages.language import Language
from askfirst.visible_text import visible

_HOUR, _SOON = 3_600, 300
_LONGEST_HEADING = 240
_HEADING_LINES = 3
_ALARMING = ("production", "irreversible")
_COSTLY = ("money", "external", "people")
_SCRIPT_WORDS = {
    "left": "left",
    "left.approve": "left.approve",
    "left.reject": "left.reject",
    "left.abort": "left.abort",
    "left.skip": "left.skip",
    "d": "time.d",
    "dh": "time.dh",
    "h": "time.h",
    "hm": "time.hm",
    "m": "time.m",
    "s": "time.s",
    "zone": "time.zone",
    "now": "ago.now",
    "ago": "ago",
    "in": "ago.in",
    "sending": "send.sending",
    "still": "send.still",
    "offline": "send.offline",
    "online": "send.online",
    "over": "send.over",
    "changed": "live.look",
    "look": "live.looked",
    "see": "since.link",
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
    """The state of the case in a few words.

    A script counts down to ``until``; ``then`` is the time-out's default action.
    """

    kind: Kind
    text: str
    until: int | None = None
    then: str = ""


def silence_of(case: Case) -> str:
    """What happens at the time-out, as the catalogue names it."""
    return case.default_action if case.default_action in ("approve", "reject", "abort") else "skip"


def open_pill(case: Case, now: float, language: Language) -> Pill:
    """How long the case stays open. In its last hour, or if it approves itself, also what happens at the time-out."""
    if case.never_expires:
        return Pill("", language.plain("nolimit"))
    left = case.expires_at - now
    then = silence_of(case)
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


def ended_pill(
    standing: CaseState,
    language: Language,
    *,
    is_declined: bool = False,
    is_other_try: bool = False,
    was_doubt: bool = False,
) -> Pill:
    """The state of a case after it was decided, or expired or was cancelled."""
    kind, key = _ENDED[standing.state]
    if is_declined:
        kind, key = "", "pill.declined"
    elif is_other_try:
        kind, key = ("", "pill.decided") if standing.has_next else _ENDED["changes_asked"]
    elif was_doubt and standing.state in ("held", "rejected"):
        kind, key = "", "pill.decided"
    elif standing.state == "held" and standing.action in _LEFT_ALONE:
        kind, key = "", "pill.rejected"
    elif standing.state in ("held", "answered") and standing.action not in ("approve", "edit"):
        key = "pill.decided"
    elif standing.state == "answered":
        key = "pill.approved"
    return Pill(kind, language.plain(key))


def time_near(at: float, now: float, language: Language) -> Html | None:
    """How far away a time is, if it is ahead or less than a day ago; a script keeps the text up to date.

    `time_ago` is for times that cannot be ahead: there a time ahead means a wrong clock, and reads "just now".
    """
    if now - at >= 24 * _HOUR:
        return None
    is_ahead = at - now >= 60
    text = language.plain("ago.in", time=language.length(at - now)) if is_ahead else language.ago(at, now)
    return Html(f'<time datetime="{moment(at, language).iso}" data-ago="in">{marked(text)}</time>')


@dataclass(frozen=True, slots=True)
class AskerLine:
    """Who asks, for the line above the heading. ``line`` is the catalogue key of its sentence."""

    face: Html
    name: Html
    strong: Html
    ago: Html
    under: list[Html]
    line: str

    @property
    def plain(self) -> str:
        """The catalogue key for a page whose heading is our own, so that no words of the asker follow."""
        return "asker" if self.line == "asker.words" else self.line


def time_ago(at: float, now: float, language: Language) -> Html:
    """How long ago a time was; a script keeps the text up to date."""
    iso = moment(at, language).iso
    return Html(f'<time datetime="{iso}" data-ago>{marked(language.ago(at, now))}</time>')


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
    return AskerLine(
        face=_face(asker.name),
        name=name,
        strong=Html(f"<strong>{name}</strong>"),
        ago=time_ago(case.created_at, now, language),
        under=under,
        line=line,
    )


def _face(name: Html | None) -> Html:
    """The initials of whoever asks: up to two letters."""
    letters = [word[:1] for word in "".join(c if c.isalnum() else " " for c in name or "").split()]
    word = "".join(letters[:2]) if len(letters) > 1 else (name or "")[:2]
    return marked(word.upper() if word.isalnum() else "?")


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading. ``is_said`` if a model or a calling service wrote it; the page then quotes it."""

    html: Html
    is_said: bool
    below: Passage | None = None
    """The whole text, if it is too long for a heading."""


def heading_of(case: Case, decision: Decision, asker: AskerLine, language: Language) -> Heading:
    """What is to be decided, in one sentence."""
    sentence = decision.sentence
    if decision.doubt is not None:
        said = passage(sentence.text, "said", 0)
        return Heading(language.say("doubt", sentence=said.label if said.is_long else sentence.html), False)
    asked = () if case.payload is None else case.payload.questions_asked
    if len(asked) > 1:
        return Heading(language.say("heading.questions", agent=asker.name, n=len(asked)), False)
    text = passage(sentence.text, "said", 0)
    is_long = text.characters > _LONGEST_HEADING or text.lines > _HEADING_LINES
    if sentence.is_trusted:
        return Heading(text.label if is_long else sentence.html, False, text if is_long else None)
    if is_long:
        return Heading(language.say("heading.long", agent=asker.name), False, text)
    said = Html(f'<span class="text">{text.whole}</span>')
    return Heading(language.say("quoted", words=said), True)


def tab_title(case: Case, decision: Decision, asker: AskerLine, language: Language) -> str:
    """The title of the browser's tab: the tool author's sentence, or a sentence for the case type."""
    if decision.sentence.source in ("sentence", "title"):
        return visible(decision.sentence.text[:_LONGEST_HEADING])
    known = case.type if language.has(f"title.{case.type}") else "input"
    name = language.plain("agent.some" if decision.asker.kind == "agent" else "service.some")
    return language.plain(f"title.{known}", agent=name)


@dataclass(frozen=True, slots=True)
class ChipText:
    """A consequence in words; ``kind`` is its colour."""

    kind: str
    text: Html


def chip_texts(decision: Decision, language: Language) -> list[ChipText]:
    """The consequences in words. The alarming ones are red if the risk is high or critical.

    A last chip names a critical risk, or a high risk that no red chip and no risk pattern explains.
    """
    high = decision.risk in ("high", "critical")
    chips = [_chip(chip, high, language) for chip in decision.chips]
    is_said = bool(decision.patterns) or any(it.kind == "bad" for it in chips)
    if decision.risk == "critical" or (high and not is_said):
        chips.append(ChipText("bad", language.say(f"risk.{decision.risk}")))
    return chips


def _chip(chip: Chip, high: bool, language: Language) -> ChipText:
    kind = "bad" if chip.name in _ALARMING and high else "warn" if chip.name in _COSTLY else ""
    if chip.name == "custom":
        return ChipText(kind, chip.text or Html(""))
    if chip.name == "people":
        return ChipText(kind, language.say("people", n=chip.count or 0))
    return ChipText(kind, language.say(chip.name))


_VERB = {
    "approval": "approve",
    "escalation": "retry",
    "confirmation": "confirm.yes",
    "selection": "choose.send",
}
_OPPOSED = ("approval", "confirmation")
"""The case types with two buttons that a service may label: one acts, after the other nothing happens."""


def button_labels(case: Case, decision: Decision, language: Language) -> dict[str, Html | None]:
    """The labels of the two buttons, as the templates name them.

    ``verb`` is that of the acting button, the tool author's or ours; ``verb_template`` is a label that a script
    completes. ``no_word`` is the label of the other button. A service's label may say the opposite of what its button
    does, so ``yes_means`` and ``no_means`` say in our own words, below that label, what the button does.
    """
    said, from_service = decision.approve, case.request is None
    later = said is not None and from_service and ("{title}" in said or "{n}" in said)
    key = _VERB.get(case.type, "input.send")
    ours = language.say(key)
    refusal = (
        "reject" if case.type != "confirmation" else "confirm.none" if choices_of(case) else "confirm.no"
    )
    no = language.say(refusal)
    opposed = from_service and case.type in _OPPOSED
    return {
        "verb": ours if said is None or later else marked(said),
        "verb_template": marked(said) if said is not None and later else None,
        "yes_means": ours if opposed and said is not None else None,
        "no_word": marked(decision.reject) if decision.reject else no,
        "no_means": no if opposed and decision.reject else None,
    }


def script_words(language: Language) -> str:
    """The sentences that the page's script needs, as JSON."""
    words = {name: language.sentences[key] for name, key in _SCRIPT_WORDS.items()}
    return json.dumps(words, ensure_ascii=False)


def unopened_text(decision: Decision, language: Language) -> Html | None:
    """How much of the case the page does not show, for the decision bar; None if it shows everything."""
    if not decision.unopened:
        return None
    lines = sum(it.last - it.first + 1 for it in decision.unopened if it.unit == "lines")
    others = any(it.unit != "lines" for it in decision.unopened)
    return language.say("unopened") if others or not lines else language.say("unopened.lines", n=lines)


def what_was_done(action: str, language: Language) -> Html:
    """A decision in words, such as "Approved"."""
    return language.say(f"did.{action}") if language.has(f"did.{action}") else own_action(action, language)


def own_action(action: str | None, language: Language) -> Html:
    """An action that the catalogue does not know, such as an agent's own choice, in quotation marks."""
    return language.say("quoted", words=Html(f"<bdi>{clipped(action or '')}</bdi>"))


_STEP = 1_300  # bytes of HTML; the server has cut a step to 400 characters


@dataclass(frozen=True, slots=True)
class StepText:
    """One step of the transcript before the request: who, and what they said or did."""

    who: Html
    text: Html


def step_text(it: Step, language: Language) -> StepText:
    """A step in words."""
    who = language.say(f"before.{it.who}") if language.has(f"before.{it.who}") else clipped(it.who, 100)
    called = "" if it.at_call is None else f" · <bdi>{clipped(it.at_call, 200)}</bdi>"
    failed = f" · {language.say('before.failed')}" if it.is_error else ""
    return StepText(Html(f"{who}{called}{failed}"), clipped(it.text, _STEP))
