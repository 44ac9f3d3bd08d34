"""Cases as plain values, on their way into a transaction and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from assent.store.audit import Entry
from assent.store.rows import Settled


class CaseRow(NamedTuple):
    """A case's columns, in the order in which they are read."""

    case_id: str
    key_id: str | None
    thread_id: str | None
    question_id: str | None
    round: int | None
    type: str
    status: str
    is_open: int
    version: int
    body: str
    """What does not change: what is asked, and how it may be answered."""
    facts: str
    """What does: the result, who gave it, how far it is."""
    draft: str | None
    created_at: int
    opened_at: int | None
    ended_at: int | None
    expires_at: int
    remind_at: int | None
    reminder_sent_at: int | None
    idempotency: str | None
    fingerprint: str | None
    awaits_effect: int
    """Whether a call that a person let run is not yet known to have ended."""
    write_id: int
    tell_at: int | None = None
    """When somebody is to be told of it who has not been; None for one of which nobody is, or all are."""


class Event(NamedTuple):
    """Something that happened to a case, as those who follow it are told."""

    event: str
    data: str


class CallbackRow(NamedTuple):
    """A callback that is still to be made, or was."""

    callback_id: str
    case_id: str
    key_id: str | None
    url: str
    body: str
    attempts: int
    due_at: int | None
    outcome: str | None
    write_id: int


class Change(NamedTuple):
    """What happens to a case at once; ``row`` is the case afterwards, its version not yet counted up."""

    row: CaseRow
    event: Event | None = None
    callback: CallbackRow | None = None
    settles: Settled | None = None
    """How the agent's request is settled along with it; if that cannot be, nothing happens."""
    audit: Sequence[Entry] = ()


class NewCase(NamedTuple):
    """A case to be opened, with what its tokens hash to, by scope."""

    row: CaseRow
    tokens: Sequence[tuple[str, str]]
    audit: Sequence[Entry] = ()
    previous: tuple[str, str | None] | None = None
    """The case it follows, and whose that must be."""
    delivered: Entry | None = None
    """What the audit trail says of its link, which a caller who asks again gets anew."""


def token_params(case_id: str, tokens: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Tokens as rows: their scope, and what they hash to."""
    return [{"case_id": case_id, "scope": scope, "token_hash": hashed} for scope, hashed in tokens]
