"""The page of a case, in every state: its template, headers, times and faults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote

from askfirst.errors import MissingExtra
from askfirst.limits import FAULTS
from askfirst.protocol import Form, FormField, visible_fields
from askfirst.service.answers import beyond
from askfirst.service.case import Case
from askfirst.service.continuation import GoingOn
from askfirst.service.pages.answered import answered, filled_in, proof_fields, questions
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
from askfirst.service.pages.inert_text import Html, Passage, marked, passage
from askfirst.service.pages.sight import Sight
from askfirst.service.pages.subject import (
    Change,
    Editable,
    call_of,
    changes,
    differ,
    edit_fields,
    editable_of,
    shown,
    text_of,
    why_of,
    words_of,
)
from askfirst.service.verification import Asked
from askfirst.smtp import masked_address

if TYPE_CHECKING:
    from jinja2 import Environment


# The templates, read and compiled once.


_HERE = Path(__file__).parent.parent
STATIC = _HERE / "static"
"""The folder to serve at ``{base_path}/static``: style sheet, script and icon."""


def load_pages() -> None:
    """Compile every template now; else the first page does."""
    _environment()


def fill(name: str, **facts: Any) -> str:
    """Render a template."""
    return _environment().get_template(name).render(facts)


@cache
def _environment() -> Environment:
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ModuleNotFoundError as error:
        raise MissingExtra("The review page", "service") from error
    sources = {path.name: path.read_text("utf-8") for path in (_HERE / "templates").glob("*.html")}
    environment = Environment(
        loader=DictLoader(sources),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=-1,
    )
    for name in sources:
        environment.get_template(name)
    return environment


# Times as a page shows them.


_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: ``iso`` for machines, ``text`` in UTC for people."""

    iso: str
    text: str


def moment(at: float) -> Moment:
    """A time, given in seconds since 1970."""
    time = datetime.fromtimestamp(at, UTC)
    return Moment(time.strftime("%Y-%m-%dT%H:%M:%SZ"), f"{time.day} {time:%B %Y, %H:%M} UTC")


def time_left(seconds: float) -> str:
    """A length of time in its largest unit, rounded down."""
    for name, length in _UNITS:
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {name}{'' if count == 1 else 's'}"
    return "less than a minute"


# The list of faults at the top of a page.


_OURS = {
    "feedback": "Your note",
    "reason": "Your note",
    "note": "Your note",
    "selected": "Your choice",
    "confirmed_items": "Your choice",
    "response": "Your answer",
    "modified_params": "Changed parameters",
    "edits": "Your changes",
    "email_code": "Your code",
    "proof": "Your proof",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: its sentence, and the label and anchor of its field."""

    sentence: str
    label: Html | None = None
    place: str | None = None


def without_prefix(faults: Mapping[str, str]) -> dict[str, str]:
    """Faults by key of the answer's data."""
    return {key.removeprefix("data.") if key != "data" else "": fault for key, fault in faults.items()}


def listed(faults: Mapping[str, str], places: Mapping[str, tuple[str, Html]]) -> list[Problem]:
    """Every fault, each with its field where the page has it."""
    return [_problem(key, fault, places) for key, fault in faults.items()]


def brief(label: Passage) -> Html:
    """A label, or its beginning; the field has all of it."""
    return label.whole if label.beginning is None else Html(f"{label.beginning} …")


def _problem(key: str, fault: str, places: Mapping[str, tuple[str, Html]]) -> Problem:
    if key in places:
        place, label = places[key]
        return Problem(fault, label, place)
    if key in _OURS:
        return Problem(fault, Html(_OURS[key]), key)
    return Problem(fault, marked(key.partition(".")[2] or key) if key not in ("", "action") else None)


# The headers that every page is sent with.


PAGE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=()",
}
"""No content from other origins, no framing, no caching, no indexing, no referrer.

With ``no-referrer`` a browser sends ``Origin: null`` with a form, so look at ``Sec-Fetch-Site`` instead.
"""


Notice = Literal[
    "saved", "more", "late", "held", "code_sent", "code_entered", "too_many_codes", "code_not_sent"
]


def render_case(
    case: Case,
    *,
    token: str,
    base_path: str,
    values: Mapping[str, Any] | None = None,
    faults: Mapping[str, str] | None = None,
    step: int = 1,
    notice: Notice | None = None,
    email_code: str = "",
    prefills: Mapping[str, Any] | None = None,
    asked: Asked | None = None,
    proofs: Mapping[int, str] | None = None,
    sight: Sight | None = None,
    now: float,
) -> str:
    """The page of a case: a form while it can be answered, else how it ended.

    ``values`` is what the person has filled in, in the shape of a result's data; without it, the case's draft
    is shown. ``faults`` are sentences by key of it, with or without ``data.`` before. ``step`` counts the steps
    of a form from 1; of an edit, 2 is the page that shows what it changes. ``notice`` tells what became of the
    last click: the draft was ``saved``, ``more`` fields came up, the answer came too ``late``, or what became of
    a code that was to be sent by e-mail. ``email_code`` is one that was entered and not looked at yet.
    ``prefills`` are the values of `fields_to_fill`, None for those that could not be had. ``asked`` are the
    proofs that an answer needs, and ``proofs`` those that were entered, by place. ``sight`` is what the
    reader sees of the case: see `askfirst.service.pages.sight`.
    """
    facts = _facts(case, base_path, now) | {"notice": notice, "sight": sight}
    if sight is not None and sight.standing.state == "held":
        return fill("held.html", **facts, undo_url=f"{sight.path}/undo?token={quote(token, safe='')}")
    if case.is_final or now >= case.expires_at:
        return _closed(case, facts, None if sight is None else sight.standing.goes_on)
    keyed = without_prefix(dict(islice((faults or {}).items(), FAULTS)))
    facts |= {
        "action_url": f"{base_path}/review/{quote(case.case_id, safe='')}/respond?token={quote(token, safe='')}",
        "values": (case.draft or {}) if values is None else values,
        "faults": keyed,
        "mailboxes": [marked(masked_address(address)) for address in case.verify_email or ()],
        "email_code": email_code,
        "prefills": prefills or {},
        "proofs": None if asked is None else proof_fields(asked, proofs or {}),
    }
    if sight is not None and sight.second is not None:
        return fill("second.html", **facts, second=sight.second, problems=listed(keyed, {}))
    page = {"approval": _decision, "escalation": _decision, "selection": _choice, "confirmation": _choice}
    return page.get(case.type, _input)(case, facts, step)


def render_unknown(base_path: str = "") -> str:
    """The page for a case that does not exist, or whose link is wrong; it does not tell which."""
    return fill("unknown.html", base_path=base_path)


def render_outlived(base_path: str = "") -> str:
    """The page for an expired link: it shows nothing of the case."""
    return fill("outlived.html", base_path=base_path)


def render_withheld(base_path: str = "") -> str:
    """The page for an address without a token, where the service itself sends people their links."""
    return fill("withheld.html", base_path=base_path)


def render_unavailable(base_path: str = "", *, sent: bool = False) -> str:
    """The page while the store cannot be reached; ``sent`` if an answer was posted.

    It is then unknown whether the answer was committed: the connection may have broken during the commit.
    """
    return fill("unavailable.html", base_path=base_path, sent=sent)


def _facts(case: Case, base_path: str, now: float) -> dict[str, Any]:
    return {
        "base_path": base_path,
        "case": case,
        "from_agent": case.request is not None,
        "call": call_of(case),
        "why": why_of(case),
        "words": words_of(case),
        "until": moment(case.expires_at),
        "asked": moment(case.created_at),
        "left": None if case.never_expires else time_left(case.expires_at - now),
        "case_name": marked(case.case_id),
        "thread_name": None if case.thread_id is None else marked(case.thread_id),
        "previous_name": None if case.previous_case_id is None else marked(case.previous_case_id),
    }


def _decision(case: Case, facts: dict[str, Any], step: int) -> str:
    """An approval or an escalation, which may bring edits with it."""
    editable = editable_of(case)
    values, faults = facts["values"], facts["faults"]
    facts["editable"] = editable
    facts["actions"] = list(case.actions)
    if editable is None:
        facts["params_text"] = text_of(values.get("modified_params", ""))
        return fill(f"{case.type}.html", **facts, problems=listed(faults, {}))
    edited: Any = values.get(editable.key)
    if step == 2 and not faults and isinstance(edited, Mapping):
        facts |= {"edited_json": json.dumps(edited), "changes": _changes(editable, edited)}
        return fill("preview.html", **facts, problems=[])
    fields = edit_fields(editable, cast("Mapping[str, Any]", edited or {}), faults)
    places = {f"{editable.key}.{field.key}": (field.name, brief(field.label)) for field in fields}
    is_changed = isinstance(edited, Mapping) and differ(editable.values, cast("Mapping[str, Any]", edited))
    facts |= {"edit_fields": fields, "editing": edited is not None, "is_changed": is_changed}
    return fill(f"{case.type}.html", **facts, problems=listed(faults, places))


def _changes(editable: Editable | None, edited: Any) -> list[Change]:
    if editable is None or not isinstance(edited, Mapping):
        return []
    return changes(editable.values, cast("Mapping[str, Any]", edited))


def _choice(case: Case, facts: dict[str, Any], step: int) -> str:
    """A selection or a confirmation."""
    facts |= {"choices": choices_of(case), "takes_one": takes_one(case), "needs_one": needs_one(case)}
    return fill(f"{case.type}.html", **facts, problems=listed(facts["faults"], {}))


def _input(case: Case, facts: dict[str, Any], step: int) -> str:
    """A form to fill in, or one text where there is no form."""
    form = case.form
    faults: Mapping[str, str] = facts["faults"]
    if form is None:
        return fill("input.html", **facts, form=None, problems=listed(faults, {}))
    values, here = _standing(form, facts["values"], faults, step, again=_again(faults, facts["notice"]))
    fields = page_fields(case, form, here.number, values, faults, facts["prefills"])
    places = {field.key: (f"f-{field.key}", brief(field.label)) for field in fields}
    facts |= {"form": form, "step": here, "fields": fields, "others_draft": case.is_others_draft}
    if here.is_summary:
        shown = {
            field.key: values[field.key] for field in visible_fields(form, values) if field.key in values
        }
        facts["summary"] = filled_in(case, form, shown)
    return fill("input.html", **facts, problems=listed(faults, places))


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


def _closed(case: Case, facts: dict[str, Any], goes_on: GoingOn | None) -> str:
    """The page of a case that has ended. Values of sensitive fields are not shown."""
    result: dict[str, Any] = dict(case.result or {})
    data: dict[str, Any] = dict(result.get("data") or {})
    editable = editable_of(case)
    edited: Any = data.pop(editable.key, None) if editable is not None else None
    more = beyond(case, data)
    by: Mapping[str, Any] = case.responded_by or {}
    if case.result is None:
        facts["words"] = replace(facts["words"], questions=questions(case))
    return fill(
        "closed.html",
        **facts,
        status=case.status if case.is_final else "expired",
        ended=moment(case.ended_at or case.expires_at),
        action=result.get("action"),
        action_name=marked(str(result.get("action"))),
        data=answered(case, {name: value for name, value in data.items() if name not in more}),
        more=[shown(name, value) for name, value in more.items()],
        changes=_changes(editable, edited),
        by=marked(str(by.get("name") or by.get("email"))) if by else None,
        claimed=_claimed(case),
        reason=passage(case.reason) if case.reason else None,
        next_name=None if case.next_case_id is None else marked(case.next_case_id),
        goes_on=goes_on,
        failed_with=None if goes_on is None or goes_on.error is None else marked(goes_on.error),
        went_on=None if goes_on is None else moment(goes_on.updated_at),
        next_try=None if goes_on is None or goes_on.next_at is None else moment(goes_on.next_at),
    )


def _claimed(case: Case) -> Any:
    """Who claims to have answered, where nobody was verified: name and messenger account."""
    said: Mapping[str, Any] = case.claimed_by or {}
    if case.responded_by or not said:
        return None
    name, account = said.get("name"), said.get("account")
    return marked(str(name or account) if not (name and account) else f"{name} ({account})")
