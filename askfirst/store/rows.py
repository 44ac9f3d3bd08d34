"""The arguments and results of transactions, as plain values that load no database library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from askfirst.errors import StoreError
from askfirst.ids import fresh_write_id as fresh_write_id
from askfirst.requests import ApproveRequest, HitlRequest, seal_in, with_seal

Row = Mapping[str, Any]
ID_LENGTH = 255
"""How many characters an id has at most."""
AT_ONCE = 50
"""How many threads one statement takes: to renew their leases, or to find them."""
GATE_RUN = "gate"
"""The id of each run of a gate, and of its agent. A gate has no agent of its own, so this is nobody's name."""


class Writing(NamedTuple):
    """A step as rows. Rows leave out the ids (thread, run) that they share with the step."""

    thread_id: str
    run_id: str
    owner: str
    fence: int
    new_fence: int
    """The thread's fence after this step."""
    acquire: bool
    release: bool
    now: int
    lease_until: int
    write_id: int
    parent: str | None = None
    parent_fence: int = 0
    messages: Sequence[tuple[str, str]] = ()
    """Role and body of each."""
    opened: Sequence[Row] = ()
    settled: Sequence[Row] = ()
    started: Sequence[Row] = ()
    ended: Sequence[str] = ()
    run: Row | None = None


class RequestRow(NamedTuple):
    """A request's columns, in the order in which `COLUMNS` reads them."""

    thread_id: str
    question_id: str
    round: int
    run_id: str | None
    kind: str
    payload: str
    digest: str | None
    status: str
    created_at: int
    expires_at: int | None
    answer: str | None
    reason: str | None
    answered_by: str | None
    via: str | None
    settled_at: int | None
    write_id: int | None
    nonce: int | None = None
    """Random, and of this round alone; None for what an earlier version opened."""
    resumer: str | None = None
    """The name of the resumer that continues the thread once this is settled; None if there is none."""
    resumes: str | None = None
    """The thread that it resumes."""


@dataclass(slots=True)
class Loaded:
    """A thread's rows."""

    fence: int
    lease_until: int
    next_seq: int
    lease_owner: str | None
    extra: str | None
    created_at: int
    requests: list[RequestRow]
    effects: list[tuple[Any, ...]]
    run: tuple[Any, ...] | None
    bodies: list[str] = field(default_factory=list[str])
    """The messages, from ``since`` on."""
    since: int = 0


class Expired(NamedTuple):
    """Requests past their deadline: how many were found, and which of them this transaction timed out.

    The others were settled by another process between the two statements.
    """

    found: int
    rows: list[RequestRow]


class Settled(NamedTuple):
    """How a request is to be settled; ``answer`` is checked against the request, the other fields are not."""

    thread_id: str
    question_id: str
    status: str
    now: int
    write_id: int
    answer: Any = None
    reason: str | None = None
    by: str | None = None
    via: str | None = None
    digest: str | None = None
    """The digest of what the person saw; None if the caller gives none."""
    actor: str | None = None
    """Who is known to settle it, for the audit trail; None for the account that runs this process."""
    round: int | None = None
    """The round of the request that the person saw; None if the caller gives none."""

    def params(self) -> dict[str, Any]:
        """The statement's parameters, all but the answer."""
        return {
            "thread_id": self.thread_id,
            "question_id": self.question_id,
            "status": self.status,
            "now": self.now,
            "write_id": self.write_id,
            "answer": None,
            "reason": encode_text(self.reason),
            "answered_by": self.by,
            "via": self.via,
            "shown": self.digest,
        }


def encode_text(text: str | None) -> str | None:
    """A person's text as JSON, so that databases which refuse NUL characters store it too."""
    return None if text is None else to_json(text).decode()


def decode_text(text: str | None) -> str | None:
    """What `encode_text` was given."""
    return None if text is None else from_json(text)


_IN_ROW: dict[str, Any] = {"thread_id": True, "question_id": True}


def encode_request(request: HitlRequest) -> str:
    """A request as JSON, without what its row has anyway."""
    payload, seal = request.payload, seal_in(request)
    if isinstance(payload, ApproveRequest) and payload.tool_call_id == request.question_id:
        text = _encode_approval(request, payload)
    else:
        text = request.model_dump_json(exclude=_IN_ROW, exclude_none=True)
    return text if seal is None else f'{text[:-1]},"seal":{to_json(seal).decode()}}}'


def _encode_approval(request: HitlRequest, payload: ApproveRequest) -> str:
    """The same JSON as pydantic's serializer gives, in a third of the time: most fields are plain JSON already."""
    if request.__pydantic_extra__ or payload.__pydantic_extra__:
        out = {**_IN_ROW, "payload": {"digest": True, "tool_call_id": True}}
        return request.model_dump_json(exclude=out, exclude_none=True)
    asked = {
        "kind": payload.kind,
        "tool_name": payload.tool_name,
        "args": payload.args,
        "details": payload.details,
        "args_schema": payload.args_schema,
        "display": payload.display,
    }
    fields: dict[str, Any] = {
        "payload": {name: value for name, value in asked.items() if value is not None},
        "created_at": request.created_at,
    }
    if request.timeout_seconds is not None:
        fields["timeout_seconds"] = request.timeout_seconds
    if request.agent_path is not None:
        fields["agent_path"] = request.agent_path
    return to_json(fields).decode()


def decode_request(row: RequestRow) -> HitlRequest:
    """The request that a row holds; raises `StoreError` if it cannot be read."""
    try:
        envelope = from_json(row.payload)
        if row.kind == "approve" and "tool_call_id" not in envelope["payload"]:
            envelope["payload"] |= {"tool_call_id": row.question_id, "digest": row.digest}
        seal = envelope.pop("seal", None)
        envelope |= {"thread_id": row.thread_id, "question_id": row.question_id}
        # As text again: pydantic calls Python for each JSON value that is given to it as an object.
        return with_seal(HitlRequest.model_validate_json(to_json(envelope)), seal)
    except UNREADABLE as error:
        raise unreadable(row, error) from error


UNREADABLE = (ValueError, TypeError, LookupError)
"""The errors of reading a row that another program, or another version, has written."""


def unreadable(row: RequestRow, error: Exception) -> StoreError:
    """Says which request cannot be read, and why."""
    what, why = f"request {row.question_id!r} of thread {row.thread_id!r}", " ".join(str(error).split())
    return StoreError(f"{what} cannot be read: {why}")


# Checkpoints as plain values, on their way into a transaction and out of it.


STATES = ("pending", "resolving", "resolved")


class CheckpointRow(NamedTuple):
    """A checkpoint's columns, in the order in which they are read."""

    checkpoint_id: str
    agent_id: str
    thread_id: str | None
    body: str
    state: str
    claimed_by: str | None
    claimed_until: int | None
    retaken: int
    created_at: int
    updated_at: int
    write_id: int


class ContinuationRow(NamedTuple):
    """A continuation's columns, in the order in which they are read."""

    thread_id: str
    resumer: str
    state: str
    due_at: int | None
    attempts: int
    error: str | None
    owner: str | None
    settled_at: int
    updated_at: int
    write_id: int


class Holding(NamedTuple):
    """A worker's write to a checkpoint, and the name under which the worker holds its claim."""

    checkpoint_id: str
    agent_id: str
    thread_id: str | None
    """None for a checkpoint of any thread."""
    by: str
    now: int
    write_id: int
    until: int = 0
    """When the claim lapses, for a claim or a renewal (epoch milliseconds)."""


class Page(NamedTuple):
    """Which checkpoints to list."""

    agent_id: str
    thread_id: str | None
    state: str | None
    """None, here and in ``thread_id``, for any."""
    limit: int
    after: tuple[int, str]
    """Created at and id of the last one of the page before."""
