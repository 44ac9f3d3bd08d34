"""A case: as a value, as a row of the store, and in the protocol's words."""

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
from askfirst.service.worker_threads import work_in
from askfirst.store.budgets import size_of
from askfirst.store.case_rows import CaseRow
from askfirst.store.rows import RequestRow, decode_request


@dataclass(frozen=True, slots=True)
class Held:
    """A decision made on a page that has not gone out yet; times are seconds since 1970 (UTC)."""

    action: str
    at: float
    until: float
    nonce: str | None
    """The digest of the nonce of the form that it came with."""
    mark: str | None
    """The mark of the browser that it came from: it may undo it."""
    who: JsonObject
    """The respondent, as `askfirst.service.person.Respondent` keeps itself."""
    result: JsonObject = field(repr=False)
    """The result as it will be, signed if the service signs."""

    @property
    def data(self) -> JsonObject:
        """What the person filled in."""
        return dict(cast("Mapping[str, Any]", self.result.get("data") or {}))

    @property
    def named(self) -> str | None:
        """Who decided, as far as the service has verified that."""
        known: Mapping[str, Any] = cast("Mapping[str, Any]", self.who.get("responded_by") or {})
        name = known.get("name") or known.get("email")
        return None if name is None else str(name)


@dataclass(frozen=True, slots=True)
class Lost:
    """A held decision that did not count, because an answer from elsewhere came first."""

    action: str
    at: float
    mark: str | None


@dataclass(frozen=True, slots=True)
class Case:
    """One case as it stands; times are seconds since 1970 (UTC).

    ``request`` is what an Askfirst agent asks; where it is None, another service opened the case with the API
    key ``key_id``. What a page shows of a request comes from ``request``, not from ``prompt``.
    """

    case_id: str
    type: str
    status: State
    version: int
    """Grows with every change; it is the poll answer's ETag."""
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
    """The e-mail addresses to which a code is sent; the person enters the code of one of them."""
    previous_case_id: str | None = None
    shown: JsonObject | None = None
    """How a service wants its case shown: labels, formats, risk and the like; see `new_review.ReviewRequest`."""
    reminder_at: tuple[float, ...] = ()
    opened_at: float | None = None
    ended_at: float | None = None
    reminder_sent_at: float | None = None
    result: JsonObject | None = None
    """``{"action": ..., "data": {...}}``, once it is completed."""
    responded_by: JsonObject | None = None
    """Who answered, where the service has verified that: ``name``, ``email``."""
    claimed_by: JsonObject | None = None
    """Who claims to have answered, unverified: ``name``, ``account``."""
    submission_context: JsonObject | None = None
    reason: str | None = None
    progress: JsonObject | None = None
    next_case_id: str | None = None
    draft: JsonObject | None = None
    """What a person has filled in and not sent yet, by field key."""
    drafted_by: str | None = None
    """The mark of the browser that the draft came from; see `draft_owner`."""
    held: Held | None = None
    """A decision that was made on a page and goes out soon."""
    lost: Lost | None = None
    answered_with: str | None = None
    """The digest of the nonce of the form that the answer came with."""
    answered_in: str | None = None
    """The mark of the browser that the answer came from."""
    viewer: str | None = field(default=None, compare=False, repr=False)
    """The mark of the browser that looks at it now; not stored."""
    reader: JsonObject | None = field(default=None, compare=False, repr=False)
    """The login of whoever looks at it now, as the host's `identify` gave it; not stored."""
    is_stepped_up: bool = field(default=False, compare=False)
    """Whether ``verify_email`` is there because of the case's risk, and no caller asked for it; not stored."""
    is_others_draft: bool = field(default=False, compare=False)
    """Whether the draft came from another browser than that; not stored."""
    size: int = field(default=0, compare=False, repr=False)
    """How many characters it has in the store: how much work it is to render."""

    @property
    def is_final(self) -> bool:
        """Whether it is answered, expired or cancelled."""
        return is_final(self.status)

    @property
    def never_expires(self) -> bool:
        """Whether it has no deadline; ``expires_at`` is then far in the future, for the protocol requires one."""
        return self.request is not None and self.request.timeout_seconds is None

    @property
    def form(self) -> Form | None:
        """The form to fill in, if there is one."""
        form = self.context.get("form")
        return None if form is None else Form.model_validate(form)

    @property
    def digest(self) -> str | None:
        """What an approval of this case is bound to: the digest of the call that is shown."""
        return None if self.payload is None else self.payload.approval_digest

    @property
    def payload(self) -> HitlPayload | None:
        """What an Askfirst agent asks; None for a case that another service opened."""
        return None if self.request is None else self.request.payload

    @property
    def actions(self) -> Sequence[str]:
        """What a person may do: the choices that an agent gave, else the actions of the case's type."""
        given = None if self.payload is None else self.payload.choices_given
        return actions_of(self.type) if given is None else given


# A case as a row. Its times are seconds in the value, and milliseconds in the row and in the row's JSON.


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
    "progress",
    "next_case_id",
    "drafted_by",
    "held",
    "lost",
    "answered_with",
    "answered_in",
)
_TUPLES = ("inline_actions", "verify_email")


def case_of(row: CaseRow, request: RequestRow | None = None) -> Case:
    """A case from its row, with the request it shows."""
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
    return work_in(row.body) + len(row.facts) + len(row.draft or "") + asked


def row_of(case: Case, write_id: int, **columns: Any) -> CaseRow:
    """A new case's row; ``columns`` are those that `Case` does not have."""
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
    """Whether a person has decided that a call may run, as it was asked about or with other arguments."""
    if case.status != "completed" or case.payload is None or case.payload.gated_call is None:
        return False
    result: dict[str, Any] = dict(case.result or {})
    return result["action"] == "approve" or "edits" in (result.get("data") or {})


def next_reminder(case: Case) -> float | None:
    """When the next reminder is due; None if there is none, or somebody is at work on the case."""
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


# A case in the protocol's words: the hitl object, the poll answer, events and callbacks.


_ENDED = {"completed": "completed_at", "expired": "expired_at", "cancelled": "cancelled_at"}


def iso(at: float) -> str:
    """Seconds since 1970 as the protocol writes times."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def review_url(base_url: str, case_id: str, token: str | None) -> str:
    """The link to the page of a case; without a token, an address that opens nothing."""
    address = page_address(base_url, case_id)
    return address if token is None else f"{address}?token={token}"


def hitl_object(case: Case, base_url: str, tokens: Mapping[TokenScope, str]) -> dict[str, Any]:
    """A case for the agent that waits for it; ``tokens`` by scope, as they were issued."""
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
    """What `poll_url` answers."""
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
    """The data of an event about a case as it stands, and what this event alone tells."""
    return to_json({**poll_answer(case), **(more or {})}).decode()


def reminder_facts(case: Case, at: float) -> dict[str, Any]:
    """The further fields of a reminder: its time, and what the person is reminded of."""
    return {"reminder_at": iso(at), "message": case.message or case.prompt}


def callback_body(case: Case, event: str, at: float) -> str:
    """What is posted to the agent's callback address when a case has ended."""
    said = {"event": event, "timestamp": iso(at), **poll_answer(case)}
    return to_json(said).decode()
