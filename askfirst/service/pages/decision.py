"""Decision: the facts about a case that its page shows, made of the real arguments and trusted words.

`decision_of` is a pure function. Every `Html` value in a `Decision` is escaped and has its hidden characters marked.
The other values are numbers and names, which the page puts into words. The size of a `Decision` is bounded, however
large the case is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from askfirst.display import (
    RISKS,
    Risk,
    button_text,
    higher,
    is_consequence,
    is_link,
    parts,
)
from askfirst.formats import ENGLISH, Style
from askfirst.limits import is_hold
from askfirst.messages import JsonObject
from askfirst.permissions.static import is_own_sentence
from askfirst.requests import HitlPayload
from askfirst.service.answers import LISTS, declines_by_cancelling, may_decline
from askfirst.service.case import Case
from askfirst.service.pages.argument_groups import Grouped, defaults_of
from askfirst.service.pages.choices import Reading, choices_of, still_unopened, unopened_items
from askfirst.service.pages.inert_text import Html, clipped, marked
from askfirst.service.pages.row import ALL, Address, CodeLine, Row, Unopened, View, address_of
from askfirst.service.pages.rows import marked_lines, rows_of
from askfirst.service.risk_patterns import NO_PATTERNS, RiskPatterns
from askfirst.wording import wording_faults, wording_in, words_in

_AMOUNT = re.compile(r"-?[\d.,]+ [A-Z]{3}")
_LONGEST_LABEL = 120
_LONGEST_NAME = 300
"""The limit for a name, such as that of an asker or a rule, in bytes of HTML."""
_LONGEST_REASON = 2_000
_REASONS_ROOM = 8_000
_LONGEST_UNDO = 4_000
_MOST_AGENTS = 8
_LONGEST_LINE = 76
_MOST_COLUMNS = 4
"""The most characters in a line of code, and columns of a table, that fit into the page's column of 44 rem."""
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
"""The acting actions by case type: after these the call runs or the answer is used. The other actions run nothing."""
LEAST_REASON = 10
"""The minimum length of a reason, in characters, where the risk is critical and a reason is required."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """The first line of the page: what is to be decided, in one sentence.

    ``parts`` are the pieces of the sentence in order. Each is a pair: its text, and whether that text is an
    argument's value. ``source`` names the author: the tool author's ``sentence`` or ``title``, the tool's ``name``
    made readable, or the ``words`` of the agent or service. The page quotes ``words``, so that nobody takes them for
    its own text.
    """

    parts: tuple[tuple[Html, bool], ...]
    text: str
    source: Literal["sentence", "title", "name", "words"]

    @property
    def html(self) -> Html:
        """The whole sentence as HTML."""
        return Html("".join(_unbroken(part) if is_value else part for part, is_value in self.parts))

    @property
    def is_trusted(self) -> bool:
        """Whether the sentence comes from the tool's author, not from a model or a calling service."""
        return self.source != "words"


@dataclass(frozen=True, slots=True)
class Chip:
    """A consequence: one of `askfirst.display.CONSEQUENCES`, ``people`` with a count or ``custom`` text."""

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
    """Why a person is asked: a sentence, and the rule or guardrail that it comes from.

    Without ``text``, the rule asks and has no sentence of its own. Without both, a person is asked because no rule
    allows the call.
    """

    text: Html | None
    rule: Html | None
    rest: Unopened | None = None
    """Where the whole sentence is shown, if it was cut here."""


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
    """A second POST, with the field ``confirmed``."""
    reason: bool
    """A reason of at least `LEAST_REASON` characters."""
    step_up: bool
    """A fresh code by e-mail."""
    tick: bool
    """The field ``unread=accepted``: the person decides although the page did not show all of the case."""
    look: bool
    """The field ``looked=accepted``: the person has looked at the lines that match a risk pattern."""


NO_FRICTION = Friction(False, False, False, False, False)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A call that was begun and may or may not have taken effect; times are seconds since 1970 (UTC)."""

    attempt: int | None
    begun_at: float | None
    idempotency_key: Html | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Everything that a page shows about the decision to be made."""

    sentence: Sentence
    approve: str | None
    """The label of the acting button; None for the page's own label."""
    reject: str | None
    """The label of the button that runs nothing; None for the page's own label."""
    tool_name: Html | None
    description: Html | None
    """What the tool does, in its author's words."""
    rows: tuple[Row, ...]
    row_count: int
    """How many rows the case has. Rows that this page does not show are reached with ``?rows=``."""
    chips: tuple[Chip, ...]
    risk: Risk
    declared_risk: Risk
    """The risk before patterns raised it."""
    patterns: tuple[Html, ...]
    """The names of the risk patterns that match, without repetition."""
    marked_lines: int
    risky: tuple[CodeLine, ...]
    """The first lines that match a risk pattern, cut. The second step shows them again."""
    line_count: int
    """Of ``line_count`` lines, ``marked_lines`` match a risk pattern. A line that matches none may be risky, too."""
    hidden: int
    """How many hidden characters the rows have."""
    foreign: int
    """How many marks the rows have for letters of another script, which may look like those of their word."""
    unopened: tuple[Unopened, ...]
    """The parts of the case that the page does not show."""
    asker: Asker
    why: tuple[Reason, ...]
    undo: Html | None
    done: Html | None
    """The tool author's sentence for a call that has run."""
    help_url: Link | None
    links: tuple[Link, ...]
    may_decline: bool
    doubt: Doubt | None
    digest: str | None
    grouped: Grouped | None = None
    """How the many arguments of a call are grouped; None if they are few, or if the tool has no defaults."""

    def way_out(self, name: str) -> Address | None:
        """The address behind a link of the page: ``link-0``, or ``row-2`` for an address among the values."""
        kind, _, place = name.partition("-")
        if kind == "link":
            found = [it.url for at, it in enumerate(self.links) if str(at) == place]
        else:
            urls = [it.url for it in self.rows if kind == "row" and str(it.place) == place]
            found = [it.href for it in urls if it is not None and it.href is not None]
        return address_of(found[0]) if found else None

    @property
    def lead(self) -> Html | None:
        """The first paragraph of the description, where the heading is no sentence but the tool's name or title."""
        if self.description is None or self.sentence.source not in ("title", "name"):
            return None
        first = Html(self.description.partition("\n\n")[0])
        return None if first.rstrip(".").lower() == self.sentence.html.lower() else first

    @property
    def is_broad(self) -> bool:
        """Whether a line of code or a table is wider than the page's column."""
        lines = (line for row in self.rows if row.lines for line in row.lines.lines)
        columns = max((len(row.table.columns) for row in self.rows if row.table), default=0)
        return columns > _MOST_COLUMNS or any(len(line.text) > _LONGEST_LINE for line in lines)

    @property
    def rest_of_rows(self) -> tuple[Unopened, ...]:
        """The rows that the page does not have."""
        return tuple(it for it in self.unopened if it.unit == "rows")

    @property
    def friction(self) -> Friction:
        """What the server demands before an acting decision counts."""
        high = self.risk in ("high", "critical")
        critical = self.risk == "critical"
        return Friction(
            high, critical, critical, high and bool(self.unopened), high and self.marked_lines > 0
        )


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
    """The facts that a page shows about a case. ``args`` are edited arguments, shown in place of the call's own.

    ``key_name`` is the name of the API key that opened the case, or of the agent that asks. ``style`` says how the
    reader's language writes values. ``view`` says which part of a long text, or of many rows, is shown. ``begun_at``
    is the time at which a call in doubt was begun.
    """
    words = _with_error_as_code(case, words_for(case, style.tag))
    call = None if case.payload is None else case.payload.shown_call
    values: Mapping[str, Any] = _facts(case) if call is None else (call[1] if args is None else args)
    is_asked = args is None and case.type == "approval" and not case.is_final
    schema = None if case.payload is None or call is None else case.payload.edit_schema
    defaults = defaults_of(schema) if is_asked else None
    shown = rows_of(values, words, patterns, style, view, defaults=defaults)
    declared = risk_of(case)
    raised = shown.marked > 0 and declared == "normal"
    template = _texts(words.get("templates"))
    formats = _texts(words.get("formats"))
    button, reject = template.get("approve"), words.get("reject")
    approve = words.get("approve") if button is None else button_text(button, values, formats, style)
    return Decision(
        sentence=_sentence(case, words, values, style),
        approve=approve[:_LONGEST_LABEL] if isinstance(approve, str) else None,
        reject=reject[:_LONGEST_LABEL] if isinstance(reject, str) else None,
        tool_name=None if call is None else clipped(call[0], _LONGEST_NAME),
        description=_html(words.get("description"), _LONGEST_UNDO),
        rows=shown.rows,
        row_count=shown.count,
        chips=_chips(words),
        risk="high" if raised else declared,
        declared_risk=declared,
        patterns=tuple(clipped(name, _LONGEST_NAME) for name in shown.patterns),
        marked_lines=shown.marked,
        risky=shown.risky,
        line_count=shown.lines,
        hidden=shown.hidden,
        foreign=shown.foreign,
        unopened=(*shown.unopened, *_of_list(case)),
        asker=_asker(case, key_name),
        why=_why(case, style.tag),
        undo=_html(words.get("undo"), _LONGEST_UNDO),
        done=_done(template.get("done_sentence"), values, formats, style),
        help_url=_link(None, words.get("help_url")),
        links=_links(words),
        may_decline=_may_decline(case),
        doubt=_doubt(case, begun_at),
        digest=case.digest,
        grouped=shown.grouped,
    )


def _of_list(case: Case) -> tuple[Unopened, ...]:
    return unopened_items(choices_of(case)) if case.type in LISTS else ()


def opened_by(decision: Decision, reading: Reading) -> Decision:
    """The same decision, without the parts of a list that the person was shown on other pages."""
    return replace(decision, unopened=still_unopened(decision.unopened, reading))


def with_risk(decision: Decision, least: Risk) -> Decision:
    """The same decision with at least this risk: a rule or a guardrail may raise it."""
    return decision if RISKS.index(decision.risk) >= RISKS.index(least) else replace(decision, risk=least)


def words_for(case: Case, tag: str | None = None) -> JsonObject:
    """The trusted words of a case: the tool author's, or, if a service opened the case, those of its API key.

    ``tag`` is the reader's language; without it, the words are in their default language.
    """
    return words_in((case.shown or {}) if case.payload is None else case.payload.words, tag)


def risk_of(case: Case, patterns: RiskPatterns = NO_PATTERNS) -> Risk:
    """The risk of a case: the tool's, raised by the rules and guardrails that ask, and by patterns.

    A risk that cannot be read counts as critical.
    """
    said = words_for(case).get("risk", "normal")
    declared: Risk = said if said in RISKS else "critical"
    details: Mapping[str, Any] = (None if case.payload is None else case.payload.details) or {}
    if is_told("risk", least := details.get("risk")):
        declared = higher(declared, cast(Risk, least)) or declared
    if declared == "normal" and marked_lines(values_of(case), patterns):
        return "high"
    return declared


def values_of(case: Case) -> JsonObject:
    """What is decided on: the arguments of the call, or the asker's facts if there is no call."""
    call = None if case.payload is None else case.payload.shown_call
    return _facts(case) if call is None else call[1]


def _facts(case: Case) -> JsonObject:
    """The facts of a case without a call: a service's context without form and choices, or an agent's details."""
    payload = case.payload
    if payload is None:
        used = ("form", *_USED.get(case.type, ()))
        return {name: value for name, value in case.context.items() if name not in used}
    return other_details(payload)


_TOLD = (
    "reason",
    "reason_in",
    "reasons",
    "matched_rule_id",
    "agent_path",
    "principal",
    "to",
    "risk",
    "hold_seconds",
)
"""Details that the gate adds to a request. Pages and messages have places of their own for them."""


def is_told(name: str, value: Any) -> bool:
    """Whether the page has its own place for this detail: only if its value has the gate's format."""
    if name in ("agent_path", "reasons"):
        return isinstance(value, list)
    if name == "reason_in":
        return isinstance(value, dict) and not wording_faults(name, value)
    if name == "risk":
        return value in RISKS
    if name == "hold_seconds":
        return is_hold(value)
    return name in _TOLD and (isinstance(value, str) or name == "to")


def other_details(payload: HitlPayload) -> JsonObject:
    """The details of a request that are neither part of its call nor added by the gate."""
    details: Mapping[str, Any] = payload.details or {}
    return {
        name: value
        for name, value in details.items()
        if name not in payload.call_details and not is_told(name, value)
    }


# The sentence.


def _sentence(case: Case, words: JsonObject, values: Mapping[str, Any], style: Style) -> Sentence:
    payload = case.payload
    template = _texts(words.get("templates")).get("sentence")
    if template is not None:
        pieces = parts(template, values, _texts(words.get("formats")), style)
        html = tuple((_in_line(it.text), it.argument is not None) for it in pieces)
        return Sentence(html, "".join(it.text for it in pieces), "sentence")
    if isinstance(said := words.get("sentence"), str):
        return _one(said, "sentence")
    if isinstance(title := words.get("title"), str):
        return _one(title, "title")
    call = None if payload is None else payload.shown_call
    if call is not None:
        return _one(readable(call[0]), "name")
    return _one(case.prompt if payload is None else " ".join(payload.sentences), "words")


def _unbroken(value: Html) -> Html:
    """A value that must not wrap: a name with hyphens, such as a host's, or an amount with its currency."""
    is_whole = ("-" in value and " " not in value) or _AMOUNT.fullmatch(value) is not None
    return Html(f'<span class="keep">{value}</span>') if is_whole else value


def _with_error_as_code(case: Case, words: JsonObject) -> JsonObject:
    """The words of an escalation by a service, in which the fact ``error`` is code unless it has a format."""
    if case.type != "escalation" or case.payload is not None:
        return words
    return {**words, "formats": {"error": "code", **_texts(words.get("formats"))}}


def _in_line(text: str) -> Html:
    return marked(" ".join(text.split("\n")))


def _done(
    template: str | None, values: Mapping[str, Any], formats: Mapping[str, str], style: Style
) -> Html | None:
    if template is None:
        return None
    pieces = parts(template, values, formats, style)
    return Html(
        "".join(_in_line(it.text) if it.argument is None else _unbroken(_in_line(it.text)) for it in pieces)
    )


def _one(text: str, source: Literal["sentence", "title", "name", "words"]) -> Sentence:
    return Sentence(((marked(text), False),), text, source)


def readable(name: str) -> str:
    """The name of a tool or an argument in words: ``pay_refund`` as ``Pay refund``."""
    spaced = " ".join(name.replace("_", " ").replace("-", " ").split())
    return spaced[:1].upper() + spaced[1:] if spaced else name


# Who, why and what else.


def _asker(case: Case, key_name: str | None) -> Asker:
    thread = _html(case.thread_id)
    if case.payload is None:
        return Asker("service", _html(key_name or case.key_id), thread=thread)
    details: Mapping[str, Any] = case.payload.details or {}
    agents = [] if case.request is None else case.request.agents[-_MOST_AGENTS:]
    path = tuple(clipped(it, _LONGEST_NAME) for it in agents)
    name = path[-1] if path else _html(key_name)
    return Asker("agent", name, path, _html(details.get("principal")), thread)


def reasons_of(case: Case, tag: str | None = None) -> list[tuple[str | None, str | None]]:
    """The reasons that rules and guardrails gave, in order and without repetition: each its sentence and its rule.

    ``tag`` is the reader's language.
    """
    payload = case.payload
    if payload is None or payload.gated_call is None:
        return []
    details: Mapping[str, Any] = payload.details or {}
    why = payload.why
    found: list[tuple[Any, Any]] = [(_reason(why.reason, details, tag), why.matched_rule_id)]
    given = details.get("reasons")
    for it in cast("list[Any]", given) if isinstance(given, list) else ():
        if isinstance(it, dict):
            more = cast("dict[str, Any]", it)
            found.append((_reason(more.get("reason"), more, tag), more.get("matched_rule_id")))
    once = dict.fromkeys((text, rule) for text, rule in found if text or rule)
    return [(_text(text) if is_own_sentence(text, rule) else None, _text(rule)) for text, rule in once]


def _reason(reason: Any, told: Mapping[str, Any], tag: str | None) -> Any:
    """The reason in a language, if it was given in several; otherwise ``reason`` as it is."""
    given = told.get("reason_in")
    return wording_in(cast("dict[str, str]", given), tag) if is_told("reason_in", given) else reason


def _why(case: Case, tag: str) -> tuple[Reason, ...]:
    made: list[Reason] = []
    room = _REASONS_ROOM
    for place, (text, rule) in enumerate(reasons_of(case, tag)[:_MOST_REASONS]):
        most = min(_LONGEST_REASON, max(room, _LONGEST_NAME))
        html = None if text is None else clipped(text, most)
        is_cut = text is not None and html is not None and html.endswith(" …") and not text.endswith(" …")
        rest = Unopened(None, place, 0, 1, 1, "items", "why") if is_cut else None
        made.append(Reason(html, None if rule is None else clipped(rule, _LONGEST_NAME), rest))
        room -= len(html or "")
    return tuple(made)


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
    """Whether a person may answer "none of these" or "I cannot answer this". An agent's question always allows it."""
    return may_decline(case) or declines_by_cancelling(case)


def _html(text: Any, most: int = _LONGEST_NAME) -> Html | None:
    return clipped(text, most) if isinstance(text, str) and text else None


def _text(given: Any) -> str | None:
    return given if isinstance(given, str) and given else None


def _texts(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        return {}
    return {name: text for name, text in cast("dict[str, Any]", given).items() if isinstance(text, str)}
