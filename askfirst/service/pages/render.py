"""The page of a case, in every state: its template, its headers, and all that the template is filled with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, cast
from urllib.parse import quote

from askfirst.limits import FAULTS
from askfirst.protocol import Form, FormField, visible_fields
from askfirst.service.answers import beyond
from askfirst.service.case import Case
from askfirst.service.pages.answered import answered, filled_in, proof_fields, questions
from askfirst.service.pages.decision import Decision, Friction, decision_of, with_risk, words_for
from askfirst.service.pages.ended import data_of, ended_heading, held_text, result_of, timeline, told
from askfirst.service.pages.faults import listed, sentences
from askfirst.service.pages.fields import (
    Step,
    choices_of,
    defaults,
    fields_of_step,
    needs_one,
    page_fields,
    step_at,
    step_with,
    takes_one,
)
from askfirst.service.pages.frame import (
    asker_line,
    chip_texts,
    ended_pill,
    heading_of,
    moment,
    open_pill,
    script_words,
    tab_title,
    unopened_text,
)
from askfirst.service.pages.inert_text import Html, Passage, marked, passage
from askfirst.service.pages.language import Language
from askfirst.service.pages.reader import Place, Reader
from askfirst.service.pages.rows import ALL, Row, rows_of
from askfirst.service.pages.sight import Sight
from askfirst.service.pages.subject import (
    Change,
    Editable,
    Words,
    changes,
    edit_fields,
    editable_of,
    shown,
    text_of,
)
from askfirst.service.pages.template import fill
from askfirst.service.risk_patterns import NO_PATTERNS
from askfirst.service.standing import standing_of
from askfirst.service.verification import Asked
from askfirst.smtp import masked_address

# The headers that every page is sent with.


PAGE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Language",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=()",
}
"""No content from other origins, no framing, no caching, no indexing, no referrer.

With ``no-referrer`` a browser sends ``Origin: null`` with a form, so look at ``Sec-Fetch-Site`` instead.
"""


Notice = Literal[
    "saved",
    "more",
    "late",
    "held",
    "changed",
    "code_sent",
    "code_entered",
    "too_many_codes",
    "code_not_sent",
]
Stage = Literal["decide", "edit", "code"]


def render_case(
    case: Case,
    *,
    token: str,
    base_path: str,
    reader: Reader | None = None,
    sight: Sight | None = None,
    values: Mapping[str, Any] | None = None,
    faults: Mapping[str, str] | None = None,
    step: int = 1,
    stage: Stage = "decide",
    notice: Notice | None = None,
    email_code: str = "",
    code_to: int | None = None,
    prefills: Mapping[str, Any] | None = None,
    asked: Asked | None = None,
    proofs: Mapping[int, str] | None = None,
    carried: Sequence[tuple[str, str]] = (),
    now: float,
) -> str:
    """The page of a case: a form while it can be answered, else how it ended.

    ``values`` is what the person has filled in, in the shape of a result's data; without it, the case's draft
    is shown. ``faults`` are by key of it, with or without ``data.`` before. ``step`` counts the steps of a form
    from 1; of an edit, 2 is the page that shows what it changes. ``stage`` is the page itself, the fields to
    ``edit``, or the ``code`` from an e-mail, which posts again what is ``carried``. ``sight`` is what the reader sees
    of the case, the second step too; without it, what the case itself tells. ``notice`` tells what became of the
    last click. ``email_code`` is one that was
    entered and not looked at yet, ``code_to`` the place of the address that one was sent to. ``prefills`` are the
    values of `fields_to_fill`, None for those that could not be had. ``asked`` are the proofs that an answer needs,
    and ``proofs`` those that were entered, by place.
    """
    reader = reader or Reader()
    sight = sight or _plain_sight(case, base_path, reader, now)
    page = _Page(case, Place(base_path, case.case_id, token, reader.asked_language), reader, sight, now)
    if sight.view != ALL:
        return page.fill("part.html", page.frame())
    if sight.standing.state != "open":
        return page.closed(notice)
    keyed = sentences(reader.language, dict(islice((faults or {}).items(), FAULTS)))
    facts = page.frame() | {
        "action_url": page.place.address("/respond"),
        "nonce": sight.nonce,
        "confirm_value": sight.confirm_value,
        "values": (case.draft or {}) if values is None else values,
        "faults": keyed,
        "notice": notice,
        "email_code": email_code,
        "code_to": None if code_to is None else _mailboxes(case)[code_to],
        "mailboxes": _mailboxes(case),
        "prefills": prefills or {},
        "proofs": None if asked is None else proof_fields(asked, proofs or {}, reader.language),
        "carried": carried,
    }
    return page.opened(facts, step, stage)


def _plain_sight(case: Case, base_path: str, reader: Reader, now: float) -> Sight:
    """What a reader sees of a case of which no more is known than itself."""
    return Sight(
        decision=decision_of(case, style=reader.style),
        standing=standing_of(case, now, case.viewer),
        organisation=reader.organisation,
        reader=None,
        nonce="",
        hold_seconds=0,
        path=f"{base_path}/review/{quote(case.case_id, safe='')}",
    )


def _mailboxes(case: Case) -> list[Html]:
    return [Html(f"<bdi>{marked(masked_address(address))}</bdi>") for address in case.verify_email or ()]


def render_unknown(base_path: str = "", reader: Reader | None = None) -> str:
    """The page for a case that does not exist, or whose link is wrong; it does not tell which."""
    return fill("message.html", reader or Reader(), base_path, {"name": "unknown", "said": "unknown"})


def render_outlived(base_path: str = "", reader: Reader | None = None) -> str:
    """The page for an expired link: it shows nothing of the case."""
    return fill("message.html", reader or Reader(), base_path, {"name": "outlived", "said": "outlived"})


def render_withheld(base_path: str = "", reader: Reader | None = None) -> str:
    """The page for an address without a token, where the service itself sends people their links."""
    return fill("message.html", reader or Reader(), base_path, {"name": "withheld", "said": "withheld"})


def render_unavailable(base_path: str = "", *, sent: bool = False, reader: Reader | None = None) -> str:
    """The page while the store cannot be reached; ``sent`` if an answer was posted.

    It is then unknown whether the answer was committed: the connection may have broken during the commit.
    """
    said = "unavailable.sent" if sent else "unavailable"
    facts = {"name": "unavailable", "said": said, "sent": sent}
    return fill("message.html", reader or Reader(), base_path, facts)


@dataclass(frozen=True, slots=True)
class Way:
    """A choice of an escalation: what is chosen, and what happens then."""

    action: str
    word: Html
    then: Html


@dataclass(frozen=True, slots=True)
class Round:
    """What is new since the round before, and the note that asked for it."""

    note: Passage | None
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class _Page:
    """One case on one page, for one reader."""

    case: Case
    place: Place
    reader: Reader
    sight: Sight
    now: float

    @property
    def language(self) -> Language:
        return self.reader.language

    def fill(self, name: str, facts: Mapping[str, Any]) -> str:
        return fill(name, self.reader, self.place.base_path, facts)

    def edited(self, args: Mapping[str, Any]) -> Decision:
        """The decision for edited arguments, with no less friction than for those that were asked about."""
        known = self.sight.decision
        name = None if known.asker.kind == "agent" else known.asker.name
        made = decision_of(self.case, args=args, style=self.reader.style, key_name=name)
        return with_risk(made, known.risk)

    def frame(self, decision: Decision | None = None) -> dict[str, Any]:
        """What every page of the case has; ``decision`` if it is about edited arguments."""
        case, language, standing = self.case, self.language, self.sight.standing
        decision = decision or self.sight.decision
        call = None if case.payload is None else case.payload.shown_call
        asker = asker_line(case, decision, self.now, language)
        heading = heading_of(case, decision, asker, language)
        is_open = standing.state == "open"
        follows = bool(self.sight.nonce) and standing.state not in ("done", "failed", "expired", "cancelled")
        return {
            "case": case,
            "d": decision,
            "tool": None if call is None else passage(call[0]),
            "tab": tab_title(case, decision, asker, language),
            "pill": open_pill(case, self.now, language) if is_open else ended_pill(standing, language),
            "asker": asker,
            "heading": heading,
            "said_below": heading.below,
            "chips": chip_texts(decision, language),
            "friction": decision.friction if is_open else Friction(False, False, False, False),
            "unopened": unopened_text(decision, language),
            "from_agent": case.request is not None,
            "from_service": case.request is None,
            "message": passage(case.message) if case.message and case.request is None else None,
            "words": self._words(decision, heading.is_said or heading.below is not None),
            "before": [_step(it, language) for it in self.sight.before],
            "organisation": marked(self.sight.organisation),
            "reader": self._reader(),
            "round": self._round(decision),
            "until": None if case.never_expires else moment(case.expires_at, language),
            "silence": case.default_action
            if case.default_action in ("approve", "reject", "abort")
            else "skip",
            "asked": moment(case.created_at, language),
            "case_name": marked(case.case_id),
            "thread_name": None if case.thread_id is None else marked(case.thread_id),
            "previous_name": None if case.previous_case_id is None else marked(case.previous_case_id),
            "previous_url": None,
            "here": self.place.address(),
            "here_without_lang": self.place.address(with_language=False),
            "script_words": script_words(language),
            "live": self.place.address("/live") if follows else None,
            "version": case.version,
            "is_raw": self.sight.view.raw,
            "state": f"{standing.state} {standing.version}",
            "second_note": "reason" if case.type == "escalation" else "note",
            "no_word": marked(decision.reject) if decision.reject else language.say(self._no()),
            "quick_reasons": [language.say(f"reject.{place}") for place in range(1, 5)],
            **self._verbs(decision),
        }

    def _no(self) -> str:
        """The button after which nothing happens, named by what it does."""
        if self.case.type != "confirmation":
            return "reject"
        return "confirm.none" if choices_of(self.case) else "confirm.no"

    def _reader(self) -> Html | None:
        name = self.sight.reader
        return None if name is None else Html(f"<strong><bdi>{marked(name)}</bdi></strong>")

    def _verbs(self, decision: Decision) -> dict[str, Any]:
        """The word of the acting button: the author's, else ours; in a sentence, ours has a small letter."""
        if decision.approve is not None:
            verb = marked(decision.approve)
            return {"verb": verb, "plain_verb": verb}
        key = _VERB.get(self.case.type, "input.send")
        return {"verb": self.language.say(key), "plain_verb": self.language.say(f"{key}.in")}

    def _words(self, decision: Decision, is_heading: bool) -> Words:
        """What the agent's side wrote, folded; a service's words stand open on the page."""
        payload = self.case.payload
        if payload is None:
            return Words("service")
        is_said = payload.gated_call is not None or self.case.form is not None or is_heading
        prompt = None if is_said else passage(" ".join(payload.sentences))
        rows = self._details() if decision.tool_name is not None else decision.rows
        return Words(payload.written_by, prompt, rows=rows)

    def _details(self) -> tuple[Row, ...]:
        """What the agent's side tells besides the call."""
        payload = self.case.payload
        details: Mapping[str, Any] = {} if payload is None else payload.details or {}
        known = (*_TOLD, *(() if payload is None else payload.call_details))
        facts = {
            name: value for name, value in details.items() if name not in known or not _is_told(name, value)
        }
        return rows_of(facts, {}, NO_PATTERNS, self.reader.style, ALL).rows

    def _round(self, decision: Decision) -> Round | None:
        previous = self.sight.previous
        call = None if self.case.payload is None else self.case.payload.shown_call
        if previous is None:
            return None
        rows = {row.key: row for row in decision.rows}
        changed = [] if previous.args is None or call is None else changes(previous.args, call[1], rows)
        note = passage(previous.note) if previous.note else None
        return Round(note, [it for it in changed if it.changed])

    # Open.

    def opened(self, facts: dict[str, Any], step: int, stage: Stage) -> str:
        problems = listed(self.language, facts["faults"], {})
        if stage == "code":
            return self.fill("code.html", facts | {"problems": problems})
        if (second := self.sight.second) is not None:
            facts |= self.frame(second.decision) | {"second": second, "problems": problems}
            return self.fill("second.html", facts)
        if self.case.type in ("approval", "escalation"):
            return self._decision(facts, step, stage)
        if self.case.type in ("selection", "confirmation"):
            facts |= {
                "choices": choices_of(self.case),
                "takes_one": takes_one(self.case),
                "needs_one": needs_one(self.case),
                "problems": listed(self.language, facts["faults"], {}),
            }
            return self.fill(f"{self.case.type}.html", facts)
        return self._input(facts, step)

    def _decision(self, facts: dict[str, Any], step: int, stage: Stage) -> str:
        """An approval or an escalation, which may bring edits with it."""
        case, editable = self.case, editable_of(self.case)
        values, faults = facts["values"], facts["faults"]
        facts |= {"editable": editable, "actions": list(case.actions), "ways": self._ways()}
        facts["params_text"] = text_of(values.get("modified_params", "")) if editable is None else ""
        edited: Any = None if editable is None else values.get(editable.key)
        if editable is not None and step == 2 and not faults and isinstance(edited, Mapping):
            return self._check(facts, editable, cast("Mapping[str, Any]", edited))
        about_edits = editable is not None and any(key.startswith(editable.key) for key in faults)
        if editable is not None and (stage == "edit" or isinstance(edited, Mapping) or about_edits):
            given = (
                dict(cast("Mapping[str, Any]", edited)) if isinstance(edited, Mapping) else dict[str, Any]()
            )
            fields = edit_fields(editable, given, faults, _labels(case))
            places = {f"{editable.key}.{it.key}": (it.name, it.word or it.label.label) for it in fields}
            facts |= {"edit_fields": fields, "problems": listed(self.language, faults, places)}
            return self.fill("edit.html", facts)
        return self.fill(f"{case.type}.html", facts | {"problems": listed(self.language, faults, {})})

    def _check(self, facts: dict[str, Any], editable: Editable, edited: Mapping[str, Any]) -> str:
        """What an edit changes, in the words of the call as it would be."""
        shown_as = self.frame(self.edited(edited))
        facts |= {name: shown_as[name] for name in ("d", "heading", "chips", "friction", "unopened", "verb")}
        rows = {row.key: row for row in shown_as["d"].rows}
        found = changes(editable.values, edited, rows, self.reader.style)
        same = {it.key for it in found if not it.changed}
        pressed = facts["values"].get("pressed", "")
        word = self.language.say(pressed) if self.language.has(pressed) else marked(str(pressed))
        verb = facts["verb"]
        return self.fill(
            "check.html",
            facts
            | {
                "edited_json": json.dumps(edited),
                "changes": found,
                "unchanged": [row for row in shown_as["d"].rows if row.key in same],
                "pressed_word": Html(f"<bdi>{verb if pressed == 'approve' else word}</bdi>"),
                "check_word": self._check_word(editable, shown_as["d"]),
                "problems": [],
            },
        )

    def _check_word(self, editable: Editable, decision: Decision) -> Html:
        """The button below the changes: the author's words name what they changed, ours say so."""
        if editable.action == "retry":
            return self.language.say("check.retry")
        return self.language.say("check.approve") if decision.approve is None else marked(decision.approve)

    def _ways(self) -> list[Way]:
        """The choices of an escalation: for a call in doubt what a person found, else what is to happen."""
        prefix = "doubt." if self.sight.decision.doubt is not None else ""
        ways: list[Way] = []
        for action in self.case.actions:
            key = f"{prefix}{action}"
            if action in ("retry", "skip", "abort"):
                ways.append(Way(action, self.language.say(key), self.language.say(f"{key}.then")))
            else:
                ways.append(
                    Way(action, Html(f"<bdi>{marked(action)}</bdi>"), self.language.say("doubt.other.then"))
                )
        order = ("skip", "retry", "abort") if prefix else ()
        return sorted(ways, key=lambda it: order.index(it.action) if it.action in order else len(order))

    def _input(self, facts: dict[str, Any], step: int) -> str:
        """A form to fill in, or one text where there is no form."""
        case, form = self.case, self.case.form
        faults: Mapping[str, str] = facts["faults"]
        if form is None:
            problems = listed(self.language, faults, {})
            return self.fill("input.html", facts | {"form": None, "step": None, "problems": problems})
        values, here = _standing(form, facts["values"], faults, step, again=_again(faults, facts["notice"]))
        fields = page_fields(case, form, here.number, values, faults, facts["prefills"], self.language)
        places = {field.key: (f"f-{field.key}", field.label.label) for field in fields}
        facts |= {"form": form, "step": here, "fields": fields, "others_draft": case.is_others_draft}
        if here.is_summary:
            shown_here = {
                field.key: values[field.key] for field in visible_fields(form, values) if field.key in values
            }
            facts["summary"] = filled_in(case, form, shown_here, self.language)
        return self.fill("input.html", facts | {"problems": listed(self.language, faults, places)})

    # Ended.

    def closed(self, notice: Notice | None) -> str:
        """The page of a case that was decided, or not in time. Values of sensitive fields are not shown."""
        case, standing, data = self.case, self.sight.standing, data_of(self.case)
        editable = editable_of(case)
        edited: Any = data.pop(editable.key, None) if editable is not None else None
        is_edited = editable is not None and isinstance(edited, Mapping)
        facts = self.frame(self.edited(cast("Mapping[str, Any]", edited)) if is_edited else None)
        if case.result is None and standing.state != "held":
            facts["words"] = replace(facts["words"], questions=questions(case))
        rows = {row.key: row for row in facts["d"].rows}
        found = (
            changes(editable.values, cast("Mapping[str, Any]", edited), rows, self.reader.style)
            if editable is not None and is_edited
            else []
        )
        same = {it.key for it in found if not it.changed}
        more = beyond(case, data)
        told_data = {name: value for name, value in data.items() if name not in more}
        return self.fill(
            "closed.html",
            facts
            | {
                "notice": notice,
                "status": case.status if case.is_final else standing.state,
                "ended_heading": ended_heading(case, standing, facts["heading"], self.language),
                "held": held_text(standing, self.now, self.language),
                "undo_url": self.place.address("/undo"),
                "nonce": "",
                "next_name": None if case.next_case_id is None else marked(case.next_case_id),
                "next_url": self.place.address("/next") if self.sight.nonce and standing.has_next else None,
                "told": told(case, standing, self.language),
                "reason": passage(case.reason) if case.reason else None,
                "outcome": result_of(standing, facts["d"].undo),
                "data": answered(case, told_data, self.language),
                "more": [shown(name, value) for name, value in more.items()],
                "changes": found,
                "unchanged": [row for row in facts["d"].rows if row.key in same],
                "timeline": timeline(case, standing, facts["asker"], self.now, self.language),
            },
        )


_VERB = {"approval": "approve", "confirmation": "confirm.yes", "selection": "choose.send"}
_TOLD = ("reason", "reasons", "matched_rule_id", "agent_path", "principal", "to")


def _is_told(name: str, value: Any) -> bool:
    """Whether the page has a place of its own for a detail of this name: only in the shape that the gate gives it."""
    if name in ("agent_path", "reasons"):
        return isinstance(value, list)
    return isinstance(value, str) or name not in ("reason", "matched_rule_id", "principal")


def _labels(case: Case) -> Mapping[str, Any]:
    given = words_for(case).get("labels")
    return cast("Mapping[str, Any]", given) if isinstance(given, dict) else {}


@dataclass(frozen=True, slots=True)
class StepText:
    """A step of what the agent did before."""

    who: Html
    text: Html


def _step(it: Any, language: Language) -> StepText:
    who = language.say(f"before.{it.who}") if language.has(f"before.{it.who}") else marked(it.who)
    called = "" if it.at_call is None else f" · <bdi>{marked(it.at_call)}</bdi>"
    return StepText(Html(f"{who}{called}"), marked(it.text))


def fields_to_fill(
    case: Case,
    *,
    values: Mapping[str, Any] | None,
    faults: Mapping[str, str] | None = None,
    step: int = 1,
    notice: Notice | None = None,
    now: float,
) -> list[FormField]:
    """The fields of such a page that have a ``default_ref`` and no value yet."""
    form = case.form
    if form is None or case.is_final or now >= case.expires_at or _again(faults, notice):
        return []
    given = (case.draft or {}) if values is None else values
    _, here = _standing(form, given, {}, step, again=False)
    shown = fields_of_step(form, here.number)
    return [field for field in shown if field.default_ref is not None and field.key not in given]


def _again(faults: Mapping[str, str] | None, notice: Notice | None) -> bool:
    """Whether a step is shown again, so that an empty field was emptied by the person."""
    return bool(faults) or notice is not None


def _standing(
    form: Form, given: Mapping[str, Any], faults: Mapping[str, str], step: int, *, again: bool
) -> tuple[dict[str, Any], Step]:
    """The values of the fields, and the step that is shown."""
    number = step_with(form, faults, step)
    cleared = {field.key for field in fields_of_step(form, number)} if again else set[str]()
    values = {key: value for key, value in defaults(form).items() if key not in cleared} | dict(given)
    return values, step_at(form, values, number)
