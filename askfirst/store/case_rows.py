"""Cases as plain values: what goes into their transactions and comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from askfirst.store.audit import Entry
    from askfirst.store.budgets import Allowance
    from askfirst.store.rows import Settled


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
    """When its notice is due; None if there is none, or it was sent."""
    size: int = 0
    """The bytes that count against its key's budget."""
    planned: int = 0
    """1 while it is to be planned whom the service tells of it, 2 once that is planned; 0 if it tells nobody."""
    held_until: int | None = None
    """When the decision that was made on its page goes out; None if none is held."""


class Round(NamedTuple):
    """The columns of a case that tell whether another round follows it."""

    case_id: str
    question_id: str | None
    round: int | None
    ended_at: int | None
    facts: str


class Event(NamedTuple):
    """An event of a case, as followers get it."""

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


class DeliveryRow(NamedTuple):
    """A message about a case in one place: to be sent, sent, or to be updated. See the table."""

    delivery_id: str
    case_id: str
    name: str
    place: str
    kind: str
    state: str
    due_at: int | None
    attempts: int
    error: str | None
    sent: str | None
    since: int
    sent_at: int | None
    write_id: int


class Change(NamedTuple):
    """A change of a case, in one transaction; ``row`` is the case afterwards, with its old version."""

    row: CaseRow
    event: Event | None = None
    callback: CallbackRow | None = None
    settles: Settled | None = None
    """How the agent's request is settled with it; if that fails, nothing is changed."""
    audit: Sequence[Entry] = ()
    forgets_before: int | None = None
    """Events of the same name up to this number are deleted: the new one replaces them."""


class TokenRow(NamedTuple):
    """A token that opens a case, as it is stored."""

    case_id: str
    token_hash: str
    scope: str
    salt: str | None = None
    """The salt from which it can be derived with the service's secret; None for a random token."""
    expires_at: int | None = None
    """When it expires; None for one from before tokens had an expiry."""
    revoked_at: int | None = None


class NewCase(NamedTuple):
    """A case to be opened, with its tokens."""

    row: CaseRow
    tokens: Sequence[TokenRow]
    audit: Sequence[Entry] = ()
    previous: tuple[str, str | None] | None = None
    """The case it follows, and that case's owner."""
    allowed: Allowance | None = None
    """The budget of its key; None where there is none."""
