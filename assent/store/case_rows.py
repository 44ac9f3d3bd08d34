"""Cases as plain values, on their way into a transaction and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from assent.store.audit import Entry
from assent.store.rows import Settled
from assent.store.usage import Allowance


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
    size: int = 0
    """How many bytes of it count among what is stored for its key."""


class Round(NamedTuple):
    """What has to be known of a case to tell whether another one follows it."""

    case_id: str
    question_id: str | None
    round: int | None
    ended_at: int | None
    facts: str


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
    """``sent``, ``retry``, ``refused``, or ``gave_up`` after days; None if it was not tried yet."""
    write_id: int
    since: int | None = None
    """When it was due first."""


class Change(NamedTuple):
    """What happens to a case at once; ``row`` is the case afterwards, its version not yet counted up."""

    row: CaseRow
    event: Event | None = None
    callback: CallbackRow | None = None
    settles: Settled | None = None
    """How the agent's request is settled along with it; if that cannot be, nothing happens."""
    audit: Sequence[Entry] = ()
    forgets_before: int | None = None
    """Up to which number events of the same name are forgotten: later ones say all that they did."""


class TokenRow(NamedTuple):
    """A token that opens a case, as it is stored."""

    case_id: str
    token_hash: str
    scope: str
    salt: str | None = None
    """What it can be made of again, by whoever has the service's secret; None for one that nobody can."""
    expires_at: int | None = None
    """When it opens nothing any more; None for one from before tokens had an end."""
    revoked_at: int | None = None


class NewCase(NamedTuple):
    """A case to be opened, with its tokens."""

    row: CaseRow
    tokens: Sequence[TokenRow]
    audit: Sequence[Entry] = ()
    previous: tuple[str, str | None] | None = None
    """The case it follows, and whose that must be."""
    allowed: Allowance | None = None
    """What its key may use; None where nobody counts."""
