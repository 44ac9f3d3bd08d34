"""Decision: what a page tells of one case before anybody decides, made of the real arguments and trusted words only.

`decision_of` is a pure function. Everything in it that is `Html` is escaped, with hidden characters marked; the rest
is numbers and names for the page to put into words. What it gives is bounded, however large the case is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from askfirst.display import (
    RISKS,
    Risk,
    button_text,
    is_consequence,
    is_link,
    parts,
)
from askfirst.formats import ENGLISH, Style
from askfirst.messages import JsonObject
from askfirst.service.answers import may_decline
from askfirst.service.case import Case
from askfirst.service.pages.inert_text import Html, marked
from askfirst.service.pages.rows import ALL, Row, Unopened, View, rows_of
from askfirst.service.risk_patterns import NO_PATTERNS, RiskPatterns

_LONGEST_LABEL = 120
_MOST_LINKS = 10
_MOST_CHIPS = 8
_MOST_REASONS = 20
_USED = {"selection": ("items", "multiple", "required"), "confirmation": ("items_to_confirm",)}
ACTING: Mapping[str, tuple[str, ...]] = {
    "approval": ("approve", "edit"),
    "confirmation": ("confirm",),
    "escalation": ("retry",),
    "selection": ("select",),
    "input": ("submit",),
}
"""The actions after which something happens, by case type; after the others nothing does."""
LEAST_REASON = 10
"""So many characters a reason has at least, where the risk is critical."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """The first line of the page.

    ``parts`` are its pieces in order, each with whether it is a value of the call. ``source`` says whose words they
    are: the tool author's ``sentence`` or ``title``, the tool's ``name`` made readable, or the ``words`` of the agent
    or service, which are quoted and never taken for the page's own.
    """

    parts: tuple[tuple[Html, bool], ...]
    text: str
    source: Literal["sentence", "title", "name", "words"]

    @property
    def html(self) -> Html:
        """All of it."""
        return Html("".join(part for part, _ in self.parts))

    @property
    def is_trusted(self) -> bool:
        """Whether no model and no caller wrote it."""
        return self.source != "words"


@dataclass(frozen=True, slots=True)
class Chip:
    """A consequence: a ``name`` of `askfirst.display.CONSEQUENCES`, ``people`` with a count, or ``custom`` text."""

    name: str
    count: int | None = None
    text: Html | None = None


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: an agent (its id, the last of its path) or a service (the name of its API key)."""

    kind: Literal["agent", "service"]
    name: Html | None
    path: tuple[Html, ...] = ()
    """The agents from the root to the one that asks."""
    principal: Html | None = None
    thread: Html | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a person is asked: a sentence, and the rule or guardrail that it comes from."""

    text: Html | None
    rule: Html | None


@dataclass(frozen=True, slots=True)
class Link:
    """A link that a person may follow: its text, its address (https), and the host that it leads to."""

    title: Html
    url: str
    host: Html


@dataclass(frozen=True, slots=True)
class Friction:
    """What the server demands before an acting decision counts (`askfirst.service.friction` checks it)."""

    second_step: bool
    """A second POST, with ``confirmed``."""
    reason: bool
    """A reason of at least `LEAST_REASON` characters."""
    step_up: bool
    """A fresh code by e-mail."""
    tick: bool
    """``unread=accepted``: something that was not opened is decided about, too."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A call that was begun and may or may not have taken effect; times are seconds since 1970 (UTC)."""

    attempt: int | None
    begun_at: float | None
    idempotency_key: Html | None


@dataclass(frozen=True, slots=True)
class Decision:
    """All that a page shows of what is to be decided."""

    sentence: Sentence
    approve: str | None
    """The words of the acting button; None for the page's own."""
    reject: str | None
    """The words of the other one; None for the page's own."""
    tool_name: Html | None
    description: Html | None
    rows: tuple[Row, ...]
    row_count: int
    """How many rows there are in all; those behind are reached with ``?rows=``."""
    chips: tuple[Chip, ...]
    risk: Risk
    declared_risk: Risk
    """The risk before patterns raised it."""
    patterns: tuple[Html, ...]
    """The names of the risk patterns that match, each once."""
    marked_lines: int
    line_count: int
    """Of ``line_count`` lines, ``marked_lines`` match; the others were not judged."""
    hidden: int
    """How many hidden characters the rows have."""
    unopened: tuple[Unopened, ...]
    """What the page shows a part of only."""
    asker: Asker
    why: tuple[Reason, ...]
    undo: Html | None
    help_url: Link | None
    links: tuple[Link, ...]
    may_decline: bool
    doubt: Doubt | None
    digest: str | None

    @property
    def friction(self) -> Friction:
        """What the server demands before an acting decision counts."""
        high = self.risk in ("high", "critical")
        critical = self.risk == "critical"
        return Friction(high, critical, critical, high and bool(self.unopened))


def decision_of(
    case: Case,
    *,
    patterns: RiskPatterns = NO_PATTERNS,
    key_name: str | None = None,
    args: Mapping[str, Any] | None = None,
    style: Style = ENGLISH,
    view: View = ALL,
    begun_at: float | None = None,
) -> Decision:
    """What a page tells of a case. ``args`` are edited arguments, shown in place of the call's own.

    ``key_name`` is the name of the API key that opened the case, ``style`` how the reader's language writes values,
    ``view`` which part of a long text or of many rows is shown, ``begun_at`` when a call in doubt was begun.
    """
    words = words_for(case)
    call = None if case.payload is None else case.payload.shown_call
    values: Mapping[str, Any] = _facts(case) if call is None else (call[1] if args is None else args)
    shown = rows_of(values, words, patterns, style, view)
    declared = _risk(words)
    raised = shown.marked > 0 and declared == "normal"
    template = _texts(words.get("templates"))
    formats = _texts(words.get("formats"))
    button, reject = template.get("approve"), words.get("reject")
    approve = words.get("approve") if button is None else button_text(button, values, formats, style)
    return Decision(
        sentence=_sentence(case, words, values, style),
        approve=approve if isinstance(approve, str) else None,
        reject=reject if isinstance(reject, str) else None,
        tool_name=None if call is None else marked(call[0]),
        description=_html(words.get("description")),
        rows=shown.rows,
        row_count=shown.count,
        chips=_chips(words),
        risk="high" if raised else declared,
        declared_risk=declared,
        patterns=tuple(marked(name) for name in shown.patterns),
        marked_lines=shown.marked,
        line_count=shown.lines,
        hidden=shown.hidden,
        unopened=shown.unopened,
        asker=_asker(case, key_name),
        why=_why(case),
        undo=_html(words.get("undo")),
        help_url=_link(None, words.get("help_url")),
        links=_links(words),
        may_decline=_may_decline(case),
        doubt=_doubt(case, begun_at),
        digest=case.digest,
    )


def with_risk(decision: Decision, least: Risk) -> Decision:
    """The same decision with at least this risk: a rule or a guardrail may raise it."""
    return decision if RISKS.index(decision.risk) >= RISKS.index(least) else replace(decision, risk=least)


def words_for(case: Case) -> JsonObject:
    """The trusted words of a case: its tool author's, or, where a service opened it, those that its key was given."""
    return dict(case.shown or {}) if case.payload is None else dict(case.payload.words)


def risk_of(case: Case) -> Risk:
    """The declared risk of a case, without patterns; what cannot be read is critical."""
    return _risk(words_for(case))


def _risk(words: Mapping[str, Any]) -> Risk:
    said = words.get("risk", "normal")
    return said if said in RISKS else "critical"


def _facts(case: Case) -> JsonObject:
    """What a service says of its case, but for the choices and fields to fill in; else an agent's details."""
    payload = case.payload
    if payload is None:
        used = ("form", *_USED.get(case.type, ()))
        return {name: value for name, value in case.context.items() if name not in used}
    told = ("reason", "reasons", "matched_rule_id", "agent_path", "principal", "to")
    details: Mapping[str, Any] = payload.details or {}
    return {name: value for name, value in details.items() if name not in (*payload.call_details, *told)}


# The sentence.


def _sentence(case: Case, words: JsonObject, values: Mapping[str, Any], style: Style) -> Sentence:
    payload = case.payload
    template = _texts(words.get("templates")).get("sentence")
    if template is not None:
        pieces = parts(template, values, _texts(words.get("formats")), style)
        html = tuple((marked(" ".join(it.text.split("\n"))), it.argument is not None) for it in pieces)
        return Sentence(html, "".join(it.text for it in pieces), "sentence")
    if isinstance(said := words.get("sentence"), str):
        return _one(said, "sentence")
    if isinstance(title := words.get("title"), str):
        return _one(title, "title")
    call = None if payload is None else payload.shown_call
    if call is not None:
        return _one(readable(call[0]), "name")
    return _one(case.prompt if payload is None else " ".join(payload.sentences), "words")


def _one(text: str, source: Literal["sentence", "title", "name", "words"]) -> Sentence:
    return Sentence(((marked(text), False),), text, source)


def readable(name: str) -> str:
    """The name of a tool or an argument in words: ``pay_refund`` as ``Pay refund``."""
    spaced = " ".join(name.replace("_", " ").replace("-", " ").split())
    return spaced[:1].upper() + spaced[1:] if spaced else name


# Who, why and what else.


def _asker(case: Case, key_name: str | None) -> Asker:
    thread = None if case.thread_id is None else marked(case.thread_id)
    if case.payload is None:
        return Asker("service", _html(key_name or case.key_id), thread=thread)
    details: Mapping[str, Any] = case.payload.details or {}
    given = details.get("agent_path")
    path = tuple(marked(str(it)) for it in cast("list[Any]", given)) if isinstance(given, list) else ()
    return Asker("agent", path[-1] if path else None, path, _html(details.get("principal")), thread)


def _why(case: Case) -> tuple[Reason, ...]:
    """Every reason that a rule or a guardrail gave, in their order."""
    payload = case.payload
    if payload is None or payload.gated_call is None:
        return ()
    details: Mapping[str, Any] = payload.details or {}
    found = [(payload.why.reason, payload.why.matched_rule_id)]
    given = details.get("reasons")
    for it in cast("list[Any]", given) if isinstance(given, list) else ():
        if isinstance(it, dict):
            more = cast("dict[str, Any]", it)
            found.append((more.get("reason"), more.get("matched_rule_id")))
    once = dict.fromkeys((text, rule) for text, rule in found if text or rule)
    return tuple(Reason(_html(text), _html(rule)) for text, rule in list(once)[:_MOST_REASONS])


def _doubt(case: Case, begun_at: float | None) -> Doubt | None:
    payload = case.payload
    if payload is None or payload.kind != "escalate" or payload.call is None:
        return None
    details: Mapping[str, Any] = payload.details or {}
    attempt = details.get("attempt")
    return Doubt(
        attempt if isinstance(attempt, int) else None, begun_at, _html(words_for(case).get("idempotency_key"))
    )


def _chips(words: Mapping[str, Any]) -> tuple[Chip, ...]:
    given = words.get("consequences")
    chips: list[Chip] = []
    for name in cast("list[Any]", given) if isinstance(given, list) else ():
        if not isinstance(name, str) or not is_consequence(name):
            continue
        kind, _, more = name.partition(":")
        count = int(more) if kind == "people" else None
        chips.append(Chip(kind, count, marked(more) if kind == "custom" else None))
    return tuple(chips[:_MOST_CHIPS])


def _links(words: Mapping[str, Any]) -> tuple[Link, ...]:
    given = words.get("links")
    found: list[Link | None] = []
    for it in cast("list[Any]", given)[:_MOST_LINKS] if isinstance(given, list) else ():
        if isinstance(it, dict):
            link = cast("dict[str, Any]", it)
            found.append(_link(link.get("title"), link.get("url")))
    return tuple(link for link in found if link is not None)


def _link(title: Any, url: Any) -> Link | None:
    if not isinstance(url, str) or not is_link(url):
        return None
    host = url.partition("//")[2].partition("/")[0].partition("?")[0].partition("#")[0]
    text = title if isinstance(title, str) and title.strip() else host
    return Link(marked(text[:_LONGEST_LABEL]), url, marked(host))


def _may_decline(case: Case) -> bool:
    """Whether a person may say "none of these" or "I cannot answer this"; to an agent's question always."""
    if case.payload is not None:
        return case.payload.kind == "ask"
    return may_decline(case)


def _html(text: Any) -> Html | None:
    return marked(text) if isinstance(text, str) and text else None


def _texts(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        return {}
    return {name: text for name, text in cast("dict[str, Any]", given).items() if isinstance(text, str)}
