"""A case: as a value, as a row of the store, and as the objects of HITL Protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from pydantic_core import from_json, to_json

from askfirst.clock import seconds, to_milliseconds
from askfirst.ids import page_address
from askfirst.messages import JsonObject
from askfirst.protocol import SPEC_VERSION, Form, State, TokenScope, actions_of, is_final
from askfirst.requests import HitlPayload, HitlRequest
from askfirst.service.worker_threads import rendering_work
from askfirst.store.budgets import size_of
from askfirst.store.case_rows import CaseRow
from askfirst.store.rows import RequestRow, decode_request


@dataclass(frozen=True, slots=True)
class Held:
    """A decision made on a page that does not count yet, because it can be undone until ``until``.

    Times are seconds since 1970 (UTC).
    """

    action: str
    at: float
    until: float
    nonce: str | None
    """The digest of the nonce of the form that brought the decision."""
    mark: str | None
    """The mark of the browser that decided."""
    who: JsonObject
    """The respondent, encoded by `askfirst.service.person.Respondent`."""
    result: JsonObject = field(repr=False)
    """The result that the case will have, signed if the service signs results."""

    @property
    def data(self) -> JsonObject:
        """The data of the answer."""
        return dict(cast("Mapping[str, Any]", self.result.get("data") or {}))

    def was_made_by(self, mark: str | None, login: Mapping[str, Any] | None) -> bool:
        """Whether a reader made this decision, and may undo it: the same browser, or the same login elsewhere.

        A login counts by its e-mail address, which the decision then has verified; names are not unique.
        """
        if mark is not None and mark == self.mark:
            return True
        known: Mapping[str, Any] = cast("Mapping[str, Any]", self.who.get("responded_by") or {})
        email, own = known.get("email"), (login or {}).get("email")
        return bool(email and own) and str(email).lower() == str(own).lower()

    @property
    def named(self) -> str | None:
        """The verified name or e-mail address of the person who decided; None if nothing was verified."""
        known: Mapping[str, Any] = cast("Mapping[str, Any]", self.who.get("responded_by") or {})
        name = known.get("name") or known.get("email")
        return None if name is None else str(name)


@dataclass(frozen=True, slots=True)
class Lost:
    """A held decision that did not count, because another answer came first."""

    action: str
    at: float
    mark: str | None


@dataclass(frozen=True, slots=True)
class Case:
    """One case in its current state; times are seconds since 1970 (UTC).

    ``request`` is the request of an Askfirst agent. If it is None, another service opened the case with the API key
    ``key_id``. A page shows an agent's request from ``request``, not from ``prompt``.
    """

    case_id: str
    type: str
    status: State
    version: int
    """Grows with every change. It is the ETag of the poll answer."""
    prompt: str
    created_at: float
    expires_at: float
    timeout: str = "PT24H"
    default_action: str = "skip"
    message: str | None = None
    context: JsonObject = field(default_factory=dict[str, Any])
    key_id: str | None = None
    request: HitlRequest | None = None
    thread_id: str | None = None
    callback_url: str | None = None
    inline_actions: tuple[str, ...] | None = None
    verification_policy: JsonObject | None = None
    verify_email: tuple[str, ...] | None = None
    """The e-mail addresses to which a code can be sent. The person enters a code that was sent to one of them."""
    previous_case_id: str | None = None
    shown: JsonObject | None = None
    """How a service wants its case shown: labels, formats, risk and the like; see `new_review.ReviewRequest`."""
    reminder_at: tuple[float, ...] = ()
    opened_at: float | None = None
    ended_at: float | None = None
    reminder_sent_at: float | None = None
    result: JsonObject | None = None
    """``{"action": ..., "data": {...}}``, once the case is completed."""
    responded_by: JsonObject | None = None
    """The person who answered, if the service has verified them: ``name``, ``email``."""
    claimed_by: JsonObject | None = None
    """The person who claims to have answered, not verified: ``name``, ``account``."""
    submission_context: JsonObject | None = None
    reason: str | None = None
    declined_by: JsonObject | None = None
    """The verified person who cannot answer, empty if nobody was verified; None unless the case was cancelled so."""
    progress: JsonObject | None = None
    next_case_id: str | None = None
    draft: JsonObject | None = None
    """The values that a person has filled in and not sent yet, by field key."""
    drafted_by: str | None = None
    """The mark of the browser that wrote the draft; see `askfirst.service.visitor.Browser`."""
    held: Held | None = None
    """A decision that was made on a page, counts from its ``until`` on, and can be undone before."""
    lost: Lost | None = None
    """The last held decision that did not count."""
    undone_with: str | None = None
    """The digests of the nonces of the forms whose decisions were undone, the latest first, separated by blanks."""
    answered_with: str | None = None
    """The digest of the nonce of the form that brought the answer."""
    answered_in: str | None = None
    """The mark of the browser that answered."""
    viewer: str | None = field(default=None, compare=False, repr=False)
    """The mark of the browser that requests the page now; not stored."""
    reader: JsonObject | None = field(default=None, compare=False, repr=False)
    """The login of the person who requests the page now, from the host's `identify`; not stored."""
    is_stepped_up: bool = field(default=False, compare=False)
    """Whether ``verify_email`` was added because of the case's risk, not by the caller; not stored."""
    is_others_draft: bool = field(default=False, compare=False)
    """Whether the draft was written in another browser than the one that requests the page now; not stored."""
    size: int = field(default=0, compare=False, repr=False)
    """The estimated work to render the case, in characters; see `rendering_work`."""

    @property
    def is_final(self) -> bool:
        """Whether the case is completed, expired or cancelled."""
        return is_final(self.status)

    def has_had(self, nonce: str) -> bool:
        """Whether the form with this nonce has brought a decision: one that is held, that counts, or was undone."""
        held = None if self.held is None else self.held.nonce
        return nonce in (held, self.answered_with) or self.has_undone(nonce)

    def has_undone(self, nonce: str | None) -> bool:
        """Whether the decision of the form with this nonce was undone. It does not count when it comes again."""
        return nonce is not None and nonce in (self.undone_with or "").split()

    @property
    def never_expires(self) -> bool:
        """Whether the case has no deadline.

        ``expires_at`` is then far in the future: the protocol requires a time.
        """
        return self.request is not None and self.request.timeout_seconds is None

    @property
    def form(self) -> Form | None:
        """The form to fill in; None if the case has none."""
        form = self.context.get("form")
        return None if form is None else Form.model_validate(form)

    @property
    def digest(self) -> str | None:
        """The digest of the call that is shown, to which an approval is bound; None without such a call."""
        return None if self.payload is None else self.payload.approval_digest

    @property
    def payload(self) -> HitlPayload | None:
        """The payload of the agent's request; None for a case that another service opened."""
        return None if self.request is None else self.request.payload

    @property
    def actions(self) -> Sequence[str]:
        """The actions that a person may choose: the agent's own choices, else the actions of the case's type."""
        given = None if self.payload is None else self.payload.choices_given
        return actions_of(self.type) if given is None else given


# A case as a row. Times are seconds in `Case`, and milliseconds in the row and in the row's JSON.


_BODY = (
    "prompt",
    "timeout",
    "default_action",
    "message",
    "context",
    "callback_url",
    "inline_actions",
    "verification_policy",
    "verify_email",
    "previous_case_id",
    "shown",
    "reminder_at",
)
_FACTS = (
    "result",
    "responded_by",
    "claimed_by",
    "submission_context",
    "reason",
    "declined_by",
    "progress",
    "next_case_id",
    "drafted_by",
    "held",
    "lost",
    "undone_with",
    "answered_with",
    "answered_in",
)
_TUPLES = ("inline_actions", "verify_email")


def case_of(row: CaseRow, request: RequestRow | None = None) -> Case:
    """A case from its row and the row of its request."""
    said: dict[str, Any] = {**from_json(row.body), **from_json(row.facts)}
    for name in _TUPLES:
        if said.get(name) is not None:
            said[name] = tuple(said[name])
    for name, kind in (("held", Held), ("lost", Lost)):
        if said.get(name) is not None:
            said[name] = kind(**said[name])
    said["reminder_at"] = tuple(seconds(at) for at in said.get("reminder_at", ()))
    return Case(
        case_id=row.case_id,
        type=row.type,
        status=cast(State, row.status),
        version=row.version,
        created_at=seconds(row.created_at),
        expires_at=seconds(row.expires_at),
        key_id=row.key_id,
        thread_id=row.thread_id,
        opened_at=seconds(row.opened_at),
        ended_at=seconds(row.ended_at),
        reminder_sent_at=seconds(row.reminder_sent_at),
        draft=None if row.draft is None else from_json(row.draft),
        request=None if request is None else decode_request(request),
        size=_size(row, request),
        **{name: value for name, value in said.items() if name in _BODY or name in _FACTS},
    )


def _size(row: CaseRow, request: RequestRow | None) -> int:
    asked = 0 if request is None else len(request.payload)
    return rendering_work(row.body) + len(row.facts) + len(row.draft or "") + asked


def row_of(case: Case, write_id: int, **columns: Any) -> CaseRow:
    """The row of a new case; ``columns`` are further columns, for which `Case` has no field."""
    body, facts = _json(case, _BODY), _json(case, _FACTS)
    draft = None if case.draft is None else to_json(case.draft).decode()
    return CaseRow(
        case_id=case.case_id,
        key_id=case.key_id,
        thread_id=case.thread_id,
        question_id=columns.get("question_id"),
        round=columns.get("round"),
        type=case.type,
        status=case.status,
        is_open=int(not is_final(case.status)),
        version=case.version,
        body=body,
        facts=facts,
        draft=draft,
        created_at=to_milliseconds(case.created_at),
        opened_at=to_milliseconds(case.opened_at),
        ended_at=to_milliseconds(case.ended_at),
        expires_at=to_milliseconds(case.expires_at),
        remind_at=to_milliseconds(next_reminder(case)),
        reminder_sent_at=to_milliseconds(case.reminder_sent_at),
        idempotency=columns.get("idempotency"),
        fingerprint=columns.get("fingerprint"),
        awaits_effect=0,
        write_id=write_id,
        tell_at=columns.get("tell_at"),
        planned=columns.get("planned", 0),
        size=size_of(body, facts, draft),
    )


def changed_row(row: CaseRow, case: Case) -> CaseRow:
    """The row of a case that has changed."""
    return row._replace(
        status=case.status,
        is_open=int(not case.is_final),
        facts=_json(case, _FACTS),
        draft=None if case.draft is None else to_json(case.draft).decode(),
        opened_at=to_milliseconds(case.opened_at),
        ended_at=to_milliseconds(case.ended_at),
        remind_at=to_milliseconds(next_reminder(case)),
        reminder_sent_at=to_milliseconds(case.reminder_sent_at),
        awaits_effect=int(lets_a_call_run(case)),
        held_until=None if case.held is None else to_milliseconds(case.held.until),
    )


def lets_a_call_run(case: Case) -> bool:
    """Whether a person has approved a call, with its own or with edited arguments."""
    if case.status != "completed" or case.payload is None or case.payload.gated_call is None:
        return False
    result: dict[str, Any] = dict(case.result or {})
    return result["action"] == "approve" or "edits" in (result.get("data") or {})


def next_reminder(case: Case) -> float | None:
    """When the next reminder is due; None if none is left, or if the case is in progress or has ended."""
    if case.status not in ("pending", "opened"):
        return None
    sent = case.reminder_sent_at
    return min((at for at in case.reminder_at if sent is None or at > sent), default=None)


def _json(case: Case, names: tuple[str, ...]) -> str:
    values: dict[str, Any] = {name: getattr(case, name) for name in names}
    for name in ("held", "lost"):
        if values.get(name) is not None:
            values[name] = asdict(values[name])
    if "reminder_at" in values:
        values["reminder_at"] = [to_milliseconds(at) for at in case.reminder_at]
    return to_json({name: value for name, value in values.items() if value is not None}).decode()


# A case as objects of HITL Protocol: the hitl object, the poll answer, events and callbacks.


_ENDED = {"completed": "completed_at", "expired": "expired_at", "cancelled": "cancelled_at"}


def iso(at: float) -> str:
    """A time, given in seconds since 1970, as the protocol writes it (ISO 8601, UTC)."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def review_url(base_url: str, case_id: str, token: str | None) -> str:
    """The link to the page of a case. Without a token it is an address that shows no case."""
    address = page_address(base_url, case_id)
    return address if token is None else f"{address}?token={token}"


def hitl_object(case: Case, base_url: str, tokens: Mapping[TokenScope, str]) -> dict[str, Any]:
    """The protocol's ``hitl`` object, for the agent that waits for the case; ``tokens`` are by scope."""
    api = f"{base_url}/v1/reviews/{case.case_id}"
    said: dict[str, Any] = {
        "spec_version": SPEC_VERSION,
        "case_id": case.case_id,
        "review_url": review_url(base_url, case.case_id, tokens.get("review")),
        "poll_url": f"{api}/status",
        "type": case.type,
        "prompt": case.prompt,
        "timeout": case.timeout,
        "default_action": case.default_action,
        "created_at": iso(case.created_at),
        "expires_at": iso(case.expires_at),
        "callback_url": case.callback_url,
        "events_url": f"{api}/events",
    }
    if case.context:
        said["context"] = case.context
    if case.reminder_at:
        said["reminder_at"] = [iso(at) for at in case.reminder_at]
    if case.previous_case_id is not None:
        said["previous_case_id"] = case.previous_case_id
    if "submit" in tokens:
        said["submit_url"] = f"{api}/respond"
        said["submit_token"] = tokens["submit"]
        if case.inline_actions is not None:
            said["inline_actions"] = list(case.inline_actions)
    if case.verification_policy is not None:
        said["verification_policy"] = case.verification_policy
    return said


def poll_answer(case: Case) -> dict[str, Any]:
    """The body of a response at ``poll_url``."""
    said: dict[str, Any] = {
        "status": case.status,
        "case_id": case.case_id,
        "created_at": iso(case.created_at),
    }
    if case.opened_at is not None:
        said["opened_at"] = iso(case.opened_at)
    if case.ended_at is not None:
        said[_ENDED[case.status]] = iso(case.ended_at)
    elif not case.never_expires:
        said["expires_at"] = iso(case.expires_at)
    if case.status == "expired":
        said["default_action"] = case.default_action
    if case.reminder_sent_at is not None:
        said["reminder_sent_at"] = iso(case.reminder_sent_at)
    for name in ("result", "responded_by", "submission_context", "next_case_id", "reason", "progress"):
        value = getattr(case, name)
        if value is not None and not (name == "progress" and case.is_final):
            said[name] = value
    return said


def event_data(case: Case, more: Mapping[str, Any] | None = None) -> str:
    """The data of an event about a case: its poll answer, and the fields ``more`` of this event alone."""
    return to_json({**poll_answer(case), **(more or {})}).decode()


def reminder_facts(case: Case, at: float) -> dict[str, Any]:
    """The further fields of a reminder event: its time, and the text of the case."""
    return {"reminder_at": iso(at), "message": case.message or case.prompt}


def callback_body(case: Case, event: str, at: float) -> str:
    """The body that is posted to the agent's callback URL when a case has ended."""
    said = {"event": event, "timestamp": iso(at), **poll_answer(case)}
    return to_json(said).decode()
