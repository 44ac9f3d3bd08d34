"""The page of a case, in every state: its template, its HTTP headers, and the values that fill the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, cast
from urllib.parse import quote

from askfirst import limits
from askfirst.display import MOST_STEPS
from askfirst.limits import FAULTS
from askfirst.protocol import visible_fields
from askfirst.service.answers import given_reason
from askfirst.service.case import Case
from askfirst.service.case_state import case_state_of
from askfirst.service.pages.answered import answers_of, filled_in, further_words, proof_fields, questions
from askfirst.service.pages.choices import (
    Reading,
    choices_of,
    listed_by,
    listing,
    needs_one,
    takes_one,
)
from askfirst.service.pages.decision import (
    NO_FRICTION,
    Decision,
    decision_of,
    opened_by,
    with_risk,
    words_for,
)
from askfirst.service.pages.edits import (
    Editable,
    Sent,
    continued,
    edit_fields,
    editable_of,
    first_shown,
    focused,
    sent_edits,
    verb_pieces,
)
from askfirst.service.pages.ended import (
    ended_heading,
    held_text,
    is_declined,
    is_other_try,
    result_of,
    timeline,
    told,
    undo_of,
)
from askfirst.service.pages.faults import listed, sentences
from askfirst.service.pages.fields import page_fields, step_links, step_with
from askfirst.service.pages.form_parts import (
    chosen_of,
    drafted_mark,
    is_again,
    listed_field,
    options_of,
    paged,
    standing_in,
)
from askfirst.service.pages.frame import (
    Moment,
    Pill,
    asker_line,
    button_labels,
    chip_texts,
    ended_pill,
    heading_of,
    moment,
    open_pill,
    script_words,
    silence_of,
    step_text,
    tab_title,
    time_near,
    unopened_text,
)
from askfirst.service.pages.inert_text import Html, clipped, marked, passage
from askfirst.service.pages.language import Language
from askfirst.service.pages.page_size import EDIT, ENDED, OPEN, Room
from askfirst.service.pages.reader import Place, Reader
from askfirst.service.pages.rounds import round_of
from askfirst.service.pages.row import ALL, View
from askfirst.service.pages.rows import Shown as Rows
from askfirst.service.pages.rows import rows_of, text_of
from askfirst.service.pages.sight import Sight
from askfirst.service.pages.sources import edited_of, raw_digest, source
from askfirst.service.pages.subject import Change, Compared, Shown, Words, changes, shown
from askfirst.service.pages.template import fill
from askfirst.service.risk_patterns import NO_PATTERNS
from askfirst.service.verification import Asked
from askfirst.smtp import masked_address

# The HTTP headers of every page.


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

With ``no-referrer`` a browser sends ``Origin: null`` with a form. So the check against cross-site requests (CSRF)
reads ``Sec-Fetch-Site`` instead of ``Origin``.
"""


Notice = Literal[
    "saved",
    "more",
    "late",
    "held",
    "undone",
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
    reading: Reading | None = None,
    unsent: Mapping[str, Any] | None = None,
    now: float,
) -> str:
    """The page of a case: a form while the case can be answered, otherwise how the case ended.

    - ``values``: what the person has filled in, in the shape of a result's data; without it, the case's draft.
    - ``faults``: sentences by key of ``values``, with or without the prefix ``data.``.
    - ``step``: the step of a form, counted from 1; for an edit, 2 is the page that shows what the edit changes.
    - ``stage``: the page to ``decide`` on, the page with fields to ``edit``, or the page that asks for the ``code``
      from an e-mail and posts the ``carried`` fields again.
    - ``sight``: what this reader sees of the case, including the second step; without it, the case alone.
    - ``notice``: what happened to the last form that was posted.
    - ``email_code``: a code that was entered and not checked yet; ``code_to``: the index of the address that a code
      was sent to.
    - ``prefills``: the values of `fields_to_fill`, None for a value that could not be fetched.
    - ``unsent``: what the person sent and what did not count, because the case was decided before.
    - ``asked``: the proofs that an answer needs; ``proofs``: those that were entered, by place.
    """
    reader = reader or Reader()
    sight = sight or _plain_sight(case, base_path, reader, now)
    reading = reading or Reading()
    sight = replace(sight, decision=opened_by(sight.decision, listed_by(case, reading)))
    place = Place(base_path, case.case_id, token, reader.asked_language)
    page = _Page(case, place, reader, sight, now, reading)
    if sight.view.out and (address := sight.decision.way_out(sight.view.out)) is not None:
        return page.fill("out.html", page.frame() | {"address": address})
    if replace(sight.view, out="") != ALL:
        return page.part()
    if sight.standing.state != "open":
        return page.closed(notice, unsent or {})
    given = {key[:_FAULT]: said[:_FAULT] for key, said in islice((faults or {}).items(), FAULTS)}
    keyed = sentences(reader.language, given)
    facts = page.frame() | {
        "action_url": page.place.address("/respond"),
        "nonce": sight.nonce,
        "confirm_value": sight.confirm_value,
        "values": _drafted(case) if values is None else values,
        "faults": keyed,
        "notice": notice,
        "email_code": email_code,
        "code_to": None if code_to is None else _mailboxes(case)[code_to],
        "code_place": code_to,
        "mailboxes": _mailboxes(case),
        "prefills": prefills or {},
        "proofs": None if asked is None else proof_fields(asked, proofs or {}, reader.language),
        "carried": carried,
    }
    return page.opened(facts, step, stage)


def _drafted(case: Case) -> Mapping[str, Any]:
    """The draft of a form. The draft of an edit is left out: only the page with the edit fields shows it."""
    return {} if case.form is None else case.draft or {}


def _plain_sight(case: Case, base_path: str, reader: Reader, now: float) -> Sight:
    """What a reader sees of a case when only the case is known: no reader, no earlier round, no nonce."""
    return Sight(
        decision=decision_of(case, style=reader.style),
        standing=case_state_of(case, now, case.viewer),
        organisation=reader.organisation,
        reader=None,
        nonce="",
        hold_seconds=0,
        path=f"{base_path}/review/{quote(case.case_id, safe='')}",
    )


def _mailboxes(case: Case) -> list[Html]:
    return [Html(f"<bdi>{marked(masked_address(address))}</bdi>") for address in case.verify_email or ()]


@dataclass(frozen=True, slots=True)
class Way:
    """One choice of an escalation: its action, its label, and what happens if it is chosen."""

    action: str
    word: Html
    then: Html


@dataclass(frozen=True, slots=True)
class _Page:
    """One case on one page, for one reader."""

    case: Case
    place: Place
    reader: Reader
    sight: Sight
    now: float
    reading: Reading = Reading()

    @property
    def language(self) -> Language:
        return self.reader.language

    def fill(self, name: str, facts: Mapping[str, Any]) -> str:
        return fill(name, self.reader, self.place.base_path, facts)

    def edited(self, args: Mapping[str, Any]) -> Decision:
        """The decision for edited arguments. Its risk is at least that of the original arguments."""
        known = self.sight.decision
        made = decision_of(self.case, args=args, style=self.reader.style, patterns=self.sight.patterns)
        return with_risk(replace(made, asker=known.asker), known.risk)

    def frame(self, decision: Decision | None = None) -> dict[str, Any]:
        """The template values of every page of the case. ``decision`` is the one for edited arguments, if given."""
        case, language, standing = self.case, self.language, self.sight.standing
        decision = decision or self.sight.decision
        call = None if case.payload is None else case.payload.shown_call
        room, rows = Room(OPEN if standing.state == "open" else ENDED), {it.key: it for it in decision.rows}
        asker = asker_line(case, decision, self.now, language)
        heading = heading_of(case, decision, asker, language)
        is_open = standing.state == "open"
        follows = bool(self.sight.nonce) and standing.state not in ("done", "failed", "expired", "cancelled")
        return {
            "case": case,
            "d": decision,
            "tool": None if call is None else passage(call[0], "said", 1),
            "tab": tab_title(case, decision, asker, language),
            "pill": open_pill(case, self.now, language) if is_open else self._ended_pill(),
            "asker": asker,
            "heading": heading,
            "said_below": heading.below,
            "chips": chip_texts(decision, language),
            "friction": decision.friction if is_open else NO_FRICTION,
            "unopened": unopened_text(decision, language),
            "lack": self._lack(),
            "from_agent": case.request is not None,
            "from_service": case.request is None,
            "room": room,
            "message": passage(case.message, "said", 2) if case.message and case.request is None else None,
            "words": self._words(decision, heading.is_said or heading.below is not None),
            "trail": self.sight.trail,
            "before": [step_text(it, language) for it in self.sight.before[-MOST_STEPS:]],
            "organisation": marked(self.sight.organisation),
            "reader": self._reader(),
            "round": round_of(case, self.sight.previous, rows, room, language),
            "until": None if case.never_expires else moment(case.expires_at, language),
            "silence": silence_of(case),
            "asked": moment(case.created_at, language),
            "near": partial(time_near, now=self.now, language=language),
            "begun": self._begun(decision),
            "case_name": clipped(case.case_id),
            "thread_name": None if case.thread_id is None else clipped(case.thread_id),
            "previous_name": None if case.previous_case_id is None else clipped(case.previous_case_id),
            "previous_url": self._previous_url(),
            "here": self.place.address(),
            "text_at": f"{self.place.address('/text')}&row=",
            "here_without_lang": self.place.address(with_language=False),
            "script_words": script_words(language),
            "now": self.now,
            "live": self.place.address("/live") if follows else None,
            "version": case.version,
            "pencils": is_open and case.type == "approval" and "edit" in case.actions and call is not None,
            "state": f"{standing.state} {standing.version}",
            "second_note": "reason" if case.type == "escalation" else "note",
            "quick_reasons": [marked(it) for it in self.sight.quick_reasons]
            or [language.say(f"reject.{place}") for place in range(1, 5)],
            **button_labels(case, decision, language),
        }

    def _begun(self, decision: Decision) -> Moment | None:
        """When a call in doubt was begun; None for any other case."""
        at = None if decision.doubt is None else decision.doubt.begun_at
        return None if at is None else moment(at, self.language)

    def _ended_pill(self) -> Pill:
        case, standing = self.case, self.sight.standing
        return ended_pill(
            standing,
            self.language,
            is_declined=is_declined(case),
            is_other_try=is_other_try(case, standing),
            was_doubt=self.sight.decision.doubt is not None,
        )

    def _previous_url(self) -> str | None:
        has_one = bool(self.sight.nonce) and self.sight.previous is not None
        return self.place.address("/previous") if has_one else None

    def _lack(self) -> Html | None:
        """A sentence on why this reader can only reject; None if they can also approve."""
        lack = self.sight.step_up_lack
        return None if lack is None else self.language.say(f"fault.stepup.{lack}")

    def _reader(self) -> Html | None:
        name = self.sight.reader
        return None if name is None else Html(f"<strong><bdi>{marked(name)}</bdi></strong>")

    def _words(self, decision: Decision, is_heading: bool) -> Words:
        """The untrusted words of the agent's side, which the page folds.

        A service's words are not among them: they are shown unfolded.
        """
        payload = self.case.payload
        if payload is None:
            return Words("service")
        is_said = payload.gated_call is not None or self.case.form is not None or is_heading
        prompt = None if is_said else passage(" ".join(payload.sentences), "said", 0)
        if decision.tool_name is None:
            return Words(payload.written_by, prompt, rows=decision.rows, rest=decision.rest_of_rows)
        told = self._rows("detail", _DETAILS)
        return Words(payload.written_by, prompt, rows=told.rows, rest=told.rest_of_rows)

    def _rows(self, of: str, room: int | None = None) -> Rows:
        """The rows of a source besides the case's own values."""
        values = source(of, self.case, self.sight.standing, self.sight.previous, self.language)
        view = replace(self.sight.view, of=of)
        words = (
            words_for(self.case, self.language.tag) if of in ("was", "edited") else {}
        )  # with its formats, so that a secret stays hidden
        return rows_of(values, words, NO_PATTERNS, self.reader.style, view, room)

    def part(self) -> str:
        """A part of a long value, further rows, or the raw values."""
        facts, view = self.frame(), self.sight.view
        at = f"{self.place.address('/text')}&of={view.of}&row={view.row}"
        facts["text_url"] = None if view.row is None else at
        is_raw = view.of == "raw"
        facts |= {"is_raw": is_raw, "raw_digest": raw_digest(self.case) if is_raw else None}
        if of := view.of:
            told = self._rows(of)
            facts["d"] = replace(facts["d"], rows=told.rows, unopened=told.unopened, digest=None)
        return self.fill("part.html", facts)

    # Open.

    def opened(self, facts: dict[str, Any], step: int, stage: Stage) -> str:
        problems = listed(self.language, facts["faults"], {})
        facts["back_to"] = None if self.case.type in ("approval", "escalation") else self.reading.part
        if stage == "code":
            said = further_words(self.case, "", facts["values"], facts, self.language)
            return self.fill("code.html", facts | said | {"problems": problems})
        if (second := self.sight.second) is not None:
            facts |= self.frame(second.decision) | {"second": second, "problems": problems}
            said = further_words(self.case, second.action, facts["values"], facts, self.language)
            return self.fill("second.html", facts | said)
        if self.case.type in ("approval", "escalation"):
            return self._decision(facts, step, stage)
        if self.case.type in ("selection", "confirmation"):
            return self._list(facts)
        return self._input(facts, step)

    def _list(self, facts: dict[str, Any]) -> str:
        """Items to choose from, or to confirm: the part of the list that the person reads."""
        case, values = self.case, facts["values"]
        chosen: Any = values.get("selected" if case.type == "selection" else "confirmed_items")
        ids = [str(it) for it in cast("list[Any]", chosen)] if isinstance(chosen, list) else []
        items = listing(choices_of(case), ids, self.reading)
        facts |= {
            "list": items,
            "takes_one": takes_one(case),
            "needs_one": needs_one(case),
            "problems": listed(self.language, facts["faults"], {}),
        }
        if items.unseen:
            facts["unopened"] = self.language.say("unopened.items", n=items.unseen)
        return self.fill(f"{case.type}.html", facts)

    def _decision(self, facts: dict[str, Any], step: int, stage: Stage) -> str:
        """The page of an approval or an escalation: to decide, to edit the arguments, or to check an edit."""
        case, editable = self.case, editable_of(self.case)
        values, faults = facts["values"], facts["faults"]
        facts |= {"editable": editable, "actions": list(case.actions), "ways": self._ways()}
        facts["ways_left"] = len(case.actions) - len(facts["ways"])
        facts["params_text"] = text_of(values.get("modified_params", "")) if editable is None else ""
        edited: Any = None if editable is None else values.get(editable.key)
        if editable is not None and step == 2 and not faults and isinstance(edited, Mapping):
            sent = sent_edits(editable, cast("Mapping[str, Any]", edited))
            if sent is not None:
                return self._check(facts, editable, cast("Mapping[str, Any]", edited), sent)
        about_edits = editable is not None and any(key.startswith(editable.key) for key in faults)
        if editable is not None and (stage == "edit" or isinstance(edited, Mapping) or about_edits):
            return self._edit(facts, editable, edited)
        facts["has_begun"] = editable is not None and bool(continued(case, editable))
        return self.fill(f"{case.type}.html", facts | {"problems": listed(self.language, faults, {})})

    def _edit(self, facts: dict[str, Any], editable: Editable, edited: Any) -> str:
        """The page with the edit fields, filled with the posted values, or with the draft of an unfinished edit."""
        faults = facts["faults"]
        posted = cast("Mapping[str, Any]", edited) if isinstance(edited, Mapping) else None
        begun = {} if posted is not None else continued(self.case, editable)
        facts["room"] = room = Room(EDIT)
        first, given = (
            first_shown(editable, faults, self.sight.edits_from),
            begun if posted is None else posted,
        )
        words = words_for(self.case, self.language.tag)
        fields = edit_fields(editable, given, faults, words, self.language, room, first)
        places = {f"{editable.key}.{it.key}": (it.name, it.word or it.label.label) for it in fields}
        facts |= {
            "edit_fields": fields,
            "edits_at": (first, first + len(fields), len(editable.values)),
            "has_begun": bool(begun),
            "focus": focused(fields, faults),
            "problems": listed(self.language, faults, places),
            "verb_pieces": verb_pieces(self.case, editable, self.reader.style),
        }
        return self.fill("edit.html", facts)

    def _check(self, facts: dict[str, Any], editable: Editable, edited: Mapping[str, Any], sent: Sent) -> str:
        """The page that shows what an edit changes, with the sentence, chips and risk of the edited call."""
        shown_as = self.frame(self.edited(edited))
        facts |= {name: shown_as[name] for name in ("d", "heading", "chips", "friction", "unopened", "verb")}
        rows = {row.key: row for row in shown_as["d"].rows}
        facts["room"] = room = Room()
        compared = Compared(editable.values, edited, editable.formats)
        found = changes(compared, room, rows, self.reader.style)
        same = {it.key for it in found if not it.changed}
        pressed = facts["values"].get("pressed", "")
        word = self.language.say(pressed) if self.language.has(pressed) else marked(str(pressed))
        verb = facts["verb"]
        return self.fill(
            "check.html",
            facts
            | {
                "edited": sent,
                "changes": found,
                "unchanged": [row for row in shown_as["d"].rows if row.key in same],
                "pressed_word": Html(f"<bdi>{verb if pressed == 'approve' else word}</bdi>"),
                "check_word": self._check_word(editable, shown_as["d"]),
                "problems": [],
            },
        )

    def _check_word(self, editable: Editable, decision: Decision) -> Html:
        """The label of the button below the changes: the tool author's label, or ours, which mentions the changes."""
        if editable.action == "retry":
            return self.language.say("check.retry")
        return self.language.say("check.approve") if decision.approve is None else marked(decision.approve)

    def _ways(self) -> list[Way]:
        """The choices of an escalation: for a call in doubt, what the person found out; else what is to happen."""
        prefix = "doubt." if self.sight.decision.doubt is not None else ""
        ways: list[Way] = []
        for action in self.case.actions:
            key = f"{prefix}{action}"
            if action in ("retry", "skip", "abort"):
                ways.append(Way(action, self.language.say(key), self.language.say(f"{key}.then")))
            elif len(action) <= limits.CHOICE_CHARACTERS and len(ways) < limits.CHOICES:
                ways.append(
                    Way(action, Html(f"<bdi>{marked(action)}</bdi>"), self.language.say("doubt.other.then"))
                )
        order = ("skip", "retry", "abort") if prefix else ()
        return sorted(ways, key=lambda it: order.index(it.action) if it.action in order else len(order))

    def _input(self, facts: dict[str, Any], step: int) -> str:
        """A page with a form, or with one text field if the case has no form."""
        case, faults = self.case, cast("Mapping[str, str]", facts["faults"])
        if case.form is None:
            problems = listed(self.language, faults, {})
            return self.fill("input.html", facts | {"form": None, "step": None, "problems": problems})
        form = paged(case.form)
        values, here = standing_in(
            form, facts["values"], faults, step, again=is_again(faults, facts["notice"])
        )
        prefills, room = facts["prefills"], facts["room"]
        fields = page_fields(case, form, here.number, values, faults, prefills, self.language, room)
        places = {field.key: (f"f-{field.key}", clipped(field.label.text, _LABEL)) for field in fields}
        facts |= {"form": form, "step": here, "fields": fields, "others_draft": case.is_others_draft}
        facts["drafted"] = None if form.steps is None else drafted_mark(case)
        facts["steps"] = step_links(form, values, here)
        facts["list"] = None
        if (field := listed_field(form, here.number)) is not None:
            chosen, at = chosen_of(values.get(field.key)), form.all_fields.index(field)
            facts["list"] = listing(options_of(case, field), chosen, self.reading, at)
            facts |= {"takes_one": field.type == "select", "needs_one": field.required}
        if here.is_summary:
            known = [it.key for it in visible_fields(form, values) if it.key in values]
            facts["places"] = [
                (it.key, step_with(form, {it.key: None}, 1)) for it in form.all_fields if it.key in known
            ]
            summary = filled_in(case, form, {key: values[key] for key in known}, self.language)
            view = View(of="draft")
            facts["summary"] = rows_of(summary, {}, NO_PATTERNS, self.reader.style, view, _SUMMARY)
        return self.fill("input.html", facts | {"problems": listed(self.language, faults, places)})

    # Ended.

    def _unsent(self, data: Mapping[str, Any], editable: Editable | None) -> list[Shown]:
        """What a person wrote that did not count, to be copied: notes, fields, and the arguments they changed."""
        edited: Any = None if editable is None else data.get(editable.key)
        changed = dict(cast("Mapping[str, Any]", edited)) if isinstance(edited, Mapping) else dict[str, Any]()
        asked: Mapping[str, Any] = {} if editable is None else editable.values
        known = ("feedback", "reason", "note", "response", "selected", "confirmed_items")
        fields = [field.key for field in self.case.form.all_fields] if self.case.form is not None else known
        said = {name: data[name] for name in fields if data.get(name) not in (None, "", [])}
        secret = set[str]() if editable is None else editable.secret_names
        edits = {
            name: value for name, value in changed.items() if value != asked.get(name) and name not in secret
        }
        return [
            shown(name, value)
            for name, value in {**answers_of(self.case, said, self.language), **edits}.items()
        ]

    def closed(self, notice: Notice | None, unsent: Mapping[str, Any]) -> str:
        """The page of a case that has ended or is held. Values of sensitive fields are not shown."""
        case, standing = self.case, self.sight.standing
        editable, edited = editable_of(case), edited_of(case)
        facts = self.frame(None if edited is None else self.edited(edited))
        if case.result is None and standing.state != "held" and (asked := questions(case)):
            told_all = rows_of({"": asked}, {}, NO_PATTERNS, self.reader.style, ALL, _QUESTIONS)
            facts["words"] = replace(facts["words"], questions=told_all.rows[0])
        rows = {row.key: row for row in facts["d"].rows}
        found: list[Change] = []
        if editable is not None and edited is not None:
            compared = Compared(editable.values, edited, editable.formats, "", "edited")
            found = changes(compared, facts["room"], rows, self.reader.style)
        same = {it.key for it in found if not it.changed}
        return self.fill(
            "closed.html",
            facts
            | {
                "notice": notice,
                "status": case.status if case.is_final else standing.state,
                "ended_heading": ended_heading(
                    case, self.sight, facts["heading"], self.now, self.language, facts["d"].done
                ),
                "unsent": self._unsent(unsent, editable),
                "held": held_text(standing, self.now, self.language),
                "undo_url": self.place.address("/undo"),
                "nonce": "",
                "next_name": None if case.next_case_id is None else marked(case.next_case_id),
                "next_url": self.place.address("/next") if self.sight.nonce and standing.has_next else None,
                "told": told(case, standing, self.language),
                "reason": None if (said := given_reason(case)) is None else passage(said, "said", 3),
                "outcome": result_of(standing, facts["d"].undo),
                "undo": undo_of(case, standing, facts["d"].undo),
                "data": self._rows("answer", _ANSWER),
                "more": self._rows("more", _MORE),
                "changes": found,
                "unchanged": [row for row in facts["d"].rows if row.key in same],
                "timeline": timeline(case, self.sight, facts["asker"], self.language),
            },
        )


_FAULT, _LABEL = 200, 300
_DETAILS, _ANSWER, _MORE, _QUESTIONS, _SUMMARY = 12_000, 25_000, 8_000, 8_000, 40_000
"""The limits of these texts and rows on a page, in bytes of HTML. Pages of their own show them whole."""
