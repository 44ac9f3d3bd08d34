"""Transactions on cases and their tokens: create, change, find, purge; what their ends mean for messages about them.

What a change does to a case is decided by a function of the case as it stands, within the transaction that
has locked it. Such a function does no I/O and may be called more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import Integer, and_, delete, exists, func, insert, literal, literal_column, select, update

from askfirst.account import os_account
from askfirst.errors import (
    CaseNotFound,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    IdempotencyConflict,
    InvalidReview,
)
from askfirst.store import audit, budgets, requests
from askfirst.store.audit import Entry
from askfirst.store.case_rows import CallbackRow, CaseRow, Change, NewCase, Round, TokenRow
from askfirst.store.case_tables import (
    callbacks,
    case_events,
    case_tokens,
    cases,
    deliveries,
    email_codes,
    failed_notices,
    keys,
    polls,
    spent,
)
from askfirst.store.rows import RequestRow
from askfirst.store.statement import Statement, Transaction, param
from askfirst.store.tables import requests as request_table

# Tokens: stored as hashes, with an expiry.


_T = case_tokens.c
_OF_CASE = _T.case_id == param("case_id")
TOKEN_COLUMNS = tuple(_T[name] for name in TokenRow._fields)
INSERT_TOKEN = Statement(
    insert(case_tokens).values({name: param(name) for name in TokenRow._fields}).inline()
)
OF_CASE = Statement(select(*TOKEN_COLUMNS).where(_OF_CASE))
OF_SCOPE = Statement(
    select(*TOKEN_COLUMNS).where(_OF_CASE, _T.scope == param("scope"), _T.revoked_at.is_(None))
)
_KEY_IS_REVOKED = exists(
    select(literal_column("1", Integer))
    .select_from(cases.join(keys, keys.c.key_id == cases.c.key_id))
    .where(cases.c.case_id == param("case_id"), keys.c.revoked_at.is_not(None))
)
OF_KEY = Statement(
    select(*TOKEN_COLUMNS).where(
        _OF_CASE, _T.scope == param("scope"), _T.revoked_at.is_(None), ~_KEY_IS_REVOKED
    )
)
LOCK_CASE = Statement(select(cases.c.case_id).where(cases.c.case_id == param("case_id")).with_for_update())
REVOKE_TOKENS = Statement(
    update(case_tokens).where(_OF_CASE, _T.revoked_at.is_(None)).values(revoked_at=param("revoked_at"))
)

Hashed = Callable[[str, str], str]
"""From a scope and a salt to the hash of their token, under the service's secret."""


def add_token(tokens: Sequence[TokenRow], entries: Sequence[Entry]) -> Transaction[None]:
    """Add tokens to their case, and audit rows; the last part of a transaction."""
    for token in tokens:
        yield INSERT_TOKEN, token._asdict()
    yield from audit.append(entries)


def token_of_scope(case_id: str, scope: str) -> Transaction[list[TokenRow]]:
    """The tokens of a scope that were not revoked, expired ones included. The case itself is not read.

    Submit tokens are revoked with the API key of their holder.
    """
    statement = OF_KEY if scope == "submit" else OF_SCOPE
    return [TokenRow(*row) for row in (yield statement, {"case_id": case_id, "scope": scope})]


def token_again(
    fresh: Sequence[TokenRow], hashed: Hashed, entries: Sequence[Entry]
) -> Transaction[dict[str, str]]:
    """The salts, by scope, of tokens that a caller got before and gets again.

    ``fresh`` are new tokens of one case. One is added where the service cannot derive the scope's token, because its
    secret has changed. A revoked token is not replaced: then the scope has no salt.
    """
    case_id = fresh[0].case_id
    yield LOCK_CASE, {"case_id": case_id}
    stored = [TokenRow(*row) for row in (yield OF_CASE, {"case_id": case_id})]
    salts: dict[str, str] = {}
    added: list[TokenRow] = []
    for token in fresh:
        known = [each for each in stored if each.scope == token.scope]
        if any(each.revoked_at is not None for each in known):
            continue
        mine = [
            each.salt for each in known if each.salt and hashed(token.scope, each.salt) == each.token_hash
        ]
        if not mine:
            added.append(token)
        salts[token.scope] = mine[0] if mine else token.salt or ""
    yield from add_token(added, entries if any(each.scope == "review" for each in added) else ())
    return salts


def revoke_tokens(case_id: str, now: int, entry_of: Callable[[int], Entry]) -> Transaction[int]:
    """Revoke all tokens of a case; returns how many there were. ``entry_of`` makes the audit row of that number."""
    count = len((yield from _living(case_id)))
    if count:
        yield REVOKE_TOKENS, {"case_id": case_id, "revoked_at": now}
        yield from audit.append([entry_of(count)])
    return count


def has_revoked(case_id: str) -> Transaction[bool]:
    """Whether a token of a case was revoked."""
    rows = yield OF_CASE, {"case_id": case_id}
    return any(token.revoked_at is not None for token in map(TokenRow._make, rows))


def _living(case_id: str) -> Transaction[list[TokenRow]]:
    rows = yield OF_CASE, {"case_id": case_id}
    return [token for token in map(TokenRow._make, rows) if token.revoked_at is None]


# Messages about a case (`askfirst.store.deliveries`) when it ends, and when the call that it let run ends.


_D = deliveries.c
_MESSAGES_OF_CASE = _D.case_id == param("case_id")
_TO_UPDATE = {
    "state": literal("updating"),
    "due_at": param("now"),
    "attempts": literal_column("0", Integer),
    "write_id": param("write_id"),
}
UPDATE_SENT = Statement(
    update(deliveries).where(_MESSAGES_OF_CASE, _D.state == literal("sent")).values(_TO_UPDATE)
)
UPDATE_AGAIN = Statement(
    update(deliveries)
    .where(_MESSAGES_OF_CASE, _D.state == literal("done"))
    .values({**_TO_UPDATE, "state": literal("again")})
)
UPDATE_ANEW = Statement(
    update(deliveries).where(_MESSAGES_OF_CASE, _D.state == literal("updating")).values(_TO_UPDATE)
)
DROP_DUE = Statement(
    update(deliveries)
    .where(_MESSAGES_OF_CASE, _D.state == literal("due"))
    .values(state=literal("dropped"), due_at=param("never"), write_id=param("write_id"))
)


def _update_messages(case_id: str, now: int, write_id: int) -> Transaction[None]:
    """Make the updates of sent messages due, and drop the messages that were not sent yet.

    A message that is being sent at the moment is updated as soon as its sending is recorded.
    """
    yield UPDATE_SENT, {"case_id": case_id, "now": now, "write_id": write_id}
    yield DROP_DUE, {"case_id": case_id, "never": None, "write_id": write_id}


def update_messages_again(case_id: str, now: int, write_id: int) -> Transaction[None]:
    """Make another update of each message due, with the result of the call; an update under way is repeated."""
    yield UPDATE_ANEW, {"case_id": case_id, "now": now, "write_id": write_id}
    yield UPDATE_AGAIN, {"case_id": case_id, "now": now, "write_id": write_id}


# Cases.


_C, _E, _Q = cases.c, case_events.c, request_table.c
_THIS = _C.case_id == param("case_id")
_ONE, _ZERO = literal_column("1", Integer), literal_column("0", Integer)
COLUMNS = tuple(_C[name] for name in CaseRow._fields)
_BIG = _C.created_at.type

CASE = Statement(select(*COLUMNS).where(_THIS))
OWNED = Statement(select(*COLUMNS).where(_THIS, _C.key_id == param("key_id")))
LOCKED = Statement(select(*COLUMNS).where(_THIS).with_for_update())
BY_IDEMPOTENCY = Statement(select(*COLUMNS).where(_C.idempotency == param("idempotency")))
OF_REQUEST = Statement(
    select(*COLUMNS).where(
        _C.thread_id == param("thread_id"),
        _C.question_id == param("question_id"),
        _C.round == param("round"),
    )
)
INSERT = Statement(insert(cases).values({name: param(name) for name in CaseRow._fields}).inline())
_CHANGED = (
    "status",
    "is_open",
    "version",
    "facts",
    "draft",
    "opened_at",
    "ended_at",
    "remind_at",
    "reminder_sent_at",
    "awaits_effect",
    "write_id",
    "size",
    "held_until",
)
UPDATE = Statement(
    update(cases).where(_THIS, _C.version == param("seen")).values({name: param(name) for name in _CHANGED})
)
EVENT = Statement(
    insert(case_events)
    .values({name: param(name) for name in ("case_id", "seq", "event", "data", "at")})
    .inline()
)
FORGET = Statement(
    delete(case_events).where(
        _E.case_id == param("case_id"), _E.event == param("event"), _E.seq <= param("seq")
    )
)
EVENTS = Statement(
    select(_E.seq, _E.event, _E.data)
    .where(_E.case_id == param("case_id"), _E.seq > param("after"))
    .order_by(_E.seq)
)
RECENT = Statement(select(_E.case_id, _E.seq).where(_E.at >= param("since")))
CALLBACK = Statement(insert(callbacks).values({name: param(name) for name in CallbackRow._fields}).inline())
DUE = Statement(
    select(_C.case_id)
    .where(_C.is_open == _ONE, _C.expires_at <= param("now"))
    .order_by(_C.is_open, _C.expires_at)
    .limit(param("limit", _BIG))
)
HELD = Statement(
    select(_C.case_id)
    .where(_C.held_until <= param("now"))
    .order_by(_C.held_until)
    .limit(param("limit", _BIG))
)
TO_REMIND = Statement(
    select(_C.case_id)
    .where(_C.is_open == _ONE, _C.remind_at <= param("now"))
    .order_by(_C.is_open, _C.remind_at)
    .limit(param("limit", _BIG))
)
_LINK = and_(_C.thread_id == _Q.thread_id, _C.question_id == _Q.question_id, _C.round == _Q.round)
_PENDING = literal_column("'pending'", _Q.status.type)
# Each of these reads a partial index of due work, so that its cost does not grow with open cases.
UNADOPTED = Statement(
    select(*requests.COLUMNS)
    .where(_Q.status == _PENDING, _Q.shown == _ZERO)
    .order_by(_Q.shown, _Q.status, _Q.created_at)
    .limit(param("limit", _BIG))
)
OUTLIVED = Statement(
    select(_Q.thread_id, _Q.question_id, _Q.round)
    .where(_Q.shown == _ONE, _Q.settled_at.is_not(None))
    .limit(param("limit", _BIG))
)
WITHDRAWN = Statement(
    select(_C.case_id).where(_C.is_open == _ONE, _C.withdrawn == _ONE).limit(param("limit", _BIG))
)
_SHOWN_HERE = and_(
    _Q.thread_id == param("thread_id"),
    _Q.question_id == param("question_id"),
    _Q.round == param("round"),
)
SHOW = Statement(update(request_table).where(_SHOWN_HERE).values(shown=_ONE))
HIDE = Statement(update(request_table).where(_SHOWN_HERE).values(shown=_ZERO))
REQUEST = Statement(select(*requests.COLUMNS).where(_SHOWN_HERE))
ROUNDS = Statement(
    select(*(_C[name] for name in Round._fields))
    .select_from(cases.join(request_table, _LINK))
    .where(_C.thread_id == param("thread_id"), _Q.kind == literal_column("'approve'", _Q.kind.type))
)
OPEN_OF_KEY = Statement(
    select(_C.case_id).where(_C.is_open == _ONE, _C.key_id == param("key_id")).limit(param("limit", _BIG))
)
OPEN_COUNT = Statement(select(func.count()).where(_C.is_open == _ONE))
ENDED = Statement(
    select(_C.case_id, _C.key_id, _C.size)
    .where(_C.is_open == _ZERO, _C.ended_at < param("before"))
    .limit(param("limit", _BIG))
)
SPENT = Statement(select(spent.c.at).where(spent.c.digest == param("digest")))
SPEND = Statement(insert(spent).values(digest=param("digest"), at=param("at")).inline())
PURGE = tuple(
    Statement(delete(table).where(table.c.case_id == param("case_id")))
    for table in (case_tokens, case_events, callbacks, email_codes, polls, failed_notices, deliveries, cases)
)


Shown = tuple[CaseRow, RequestRow | None]
"""A case, and the request that it shows; None where a service opened the case through the API."""


def create(new: NewCase) -> Transaction[CaseRow]:
    """Open a case; the case of the same idempotency key is returned if there is one."""
    row = new.row
    if row.idempotency is not None:
        known = yield BY_IDEMPOTENCY, {"idempotency": row.idempotency}
        if known:
            found = CaseRow(*known[0])
            if found.fingerprint != row.fingerprint:
                raise IdempotencyConflict
            yield from _mark_shown(found)
            return found
    if new.previous is not None:
        yield from _follow(*new.previous, row.case_id, row.write_id)
    yield (
        INSERT,
        row._asdict(),
    )  # a race for the id or the idempotency key ends in a unique violation, and is retried
    yield from _mark_shown(row)
    if new.allowed is not None and row.key_id is not None:
        yield from budgets.case_opened(row.key_id, row.size, row.created_at, new.allowed)
    yield from add_token(new.tokens, new.audit)
    return row


def _mark_shown(row: CaseRow) -> Transaction[None]:
    """Mark a case's request as shown; raises `HitlNoPendingRequest` if it was deleted with its thread."""
    if row.thread_id is not None and not (yield SHOW, row._asdict()):
        raise HitlNoPendingRequest(row.thread_id, row.question_id or "")


def _mark_hidden(row: CaseRow) -> Transaction[None]:
    """Mark a case's request as no longer shown."""
    if row.thread_id is not None:
        yield HIDE, row._asdict()


def _close(row: CaseRow, now: int, write_id: int) -> Transaction[None]:
    """What follows from the end of a case: its request is not shown any more, and its messages say how it ended."""
    yield from _mark_hidden(row)
    if row.planned:
        yield from _update_messages(row.case_id, now, write_id)


def _follow(case_id: str, key_id: str | None, following: str, write_id: int) -> Transaction[None]:
    """Record the next round of a case."""
    row = yield from locked(case_id)
    if row is None or row.key_id != key_id:
        raise CaseNotFound(case_id)
    facts = from_json(row.facts)
    if "next_case_id" in facts:
        raise InvalidReview({"previous_case_id": "is followed by another case already; name the last one"})
    facts = to_json({**facts, "next_case_id": following}).decode()
    now = {**row._asdict(), "facts": facts, "version": row.version + 1, "write_id": write_id}
    yield UPDATE, {**now, "seen": row.version}


def get(case_id: str, key_id: str | None = None) -> Transaction[CaseRow | None]:
    """A case as it stands now; with ``key_id``, only one that this key opened."""
    if key_id is None:
        rows = yield CASE, {"case_id": case_id}
    else:
        rows = yield OWNED, {"case_id": case_id, "key_id": key_id}
    return CaseRow(*rows[0]) if rows else None


def shown(case_id: str, key_id: str | None = None) -> Transaction[Shown | None]:
    """A case as it stands now, and the request that it shows; with ``key_id``, only one that this key opened."""
    row = yield from get(case_id, key_id)
    return None if row is None else (row, (yield from request_of(row)))


def open_of_key(key_id: str, limit: int) -> Transaction[list[str]]:
    """Cases that are open and that a key has opened."""
    return [case_id for (case_id,) in (yield OPEN_OF_KEY, {"key_id": key_id, "limit": limit})]


def locked(case_id: str) -> Transaction[CaseRow | None]:
    """A case, locked until this transaction ends."""
    rows = yield LOCKED, {"case_id": case_id}
    return CaseRow(*rows[0]) if rows else None


Decide = Callable[[CaseRow, RequestRow | None], Change | None]
"""From a case's row, and its request's if there is one, to a change; None for no change."""


def change(case_id: str, decide: Decide, now: int, write_id: int) -> Transaction[CaseRow]:
    """Change a case (compare-and-set), with its event, callback and audit rows; raises what ``decide`` raises."""
    row = yield from locked(case_id)
    if row is None:
        raise CaseNotFound(case_id)
    decided = decide(row, (yield from request_of(row)))
    if decided is None:
        if not row.is_open:
            yield from _mark_hidden(row)
        return row
    if decided.settles is not None:
        settled = yield from requests.settle(decided.settles)
        if settled.round != row.round or settled.status != decided.settles.status:
            raise HitlStaleAnswer(settled.question_id, "superseded")  # the case shows an earlier round
    after = decided.row
    size = row.size if row.key_id is None else budgets.size_of(after.body, after.facts, after.draft)
    changed = after._replace(version=row.version + 1, write_id=write_id, size=size)
    yield UPDATE, {**changed._asdict(), "seen": row.version}
    if not changed.is_open:
        yield from _close(row, now, write_id)
    if decided.event is not None:
        if decided.forgets_before is not None:
            old = {"case_id": case_id, "event": decided.event.event, "seq": decided.forgets_before}
            yield FORGET, old
        yield EVENT, {"case_id": case_id, "seq": changed.version, "at": now, **decided.event._asdict()}
    if decided.callback is not None:
        yield CALLBACK, decided.callback._asdict()
        yield from budgets.callback_due(row.key_id, now)
    yield from budgets.case_changed(row.key_id, closed=row.is_open - changed.is_open, more=size - row.size)
    yield from audit.append(decided.audit)
    return changed


def changed(case_id: str, write_id: int) -> Transaction[CaseRow | None]:
    """The case, if this write changed it: the check after an indeterminate commit. Else None."""
    row = yield from locked(case_id)
    return row if row is not None and row.write_id == write_id else None


def request_of(row: CaseRow) -> Transaction[RequestRow | None]:
    """The request of a case; None if a service opened the case."""
    if row.thread_id is None:
        return None
    rows = yield REQUEST, row._asdict()
    return RequestRow(*rows[0]) if rows else None


def of_request(thread_id: str, question_id: str, round: int) -> Transaction[CaseRow | None]:
    """The case that shows a request."""
    rows = yield OF_REQUEST, {"thread_id": thread_id, "question_id": question_id, "round": round}
    return CaseRow(*rows[0]) if rows else None


def unadopted(limit: int) -> Transaction[list[RequestRow]]:
    """Open requests without a case, oldest first."""
    return [RequestRow(*row) for row in (yield UNADOPTED, {"limit": limit})]


def settled_elsewhere(limit: int) -> Transaction[list[str]]:
    """Cases whose requests were settled elsewhere, or deleted with their threads."""
    found = [case_id for (case_id,) in (yield WITHDRAWN, {"limit": limit})]
    for key in (yield OUTLIVED, {"limit": limit}):
        row = yield from of_request(*key)
        if row is not None:
            found.append(row.case_id)
    return found


def rounds(thread_id: str) -> Transaction[list[Round]]:
    """The cases of a thread's calls, without their bodies."""
    return [Round(*row) for row in (yield ROUNDS, {"thread_id": thread_id})]


def request(thread_id: str, question_id: str, round: int) -> Transaction[RequestRow | None]:
    """One round of a request."""
    rows = yield REQUEST, {"thread_id": thread_id, "question_id": question_id, "round": round}
    return RequestRow(*rows[0]) if rows else None


def open_count() -> Transaction[int]:
    """How many cases are open."""
    return (yield OPEN_COUNT, {})[0][0]


def due(now: int, limit: int) -> Transaction[list[str]]:
    """Open cases past their deadline."""
    return [case_id for (case_id,) in (yield DUE, {"now": now, "limit": limit})]


def held(now: int, limit: int) -> Transaction[list[str]]:
    """Cases whose held decision is due to go out."""
    return [case_id for (case_id,) in (yield HELD, {"now": now, "limit": limit})]


def to_remind(now: int, limit: int) -> Transaction[list[str]]:
    """Open cases with a reminder due."""
    return [case_id for (case_id,) in (yield TO_REMIND, {"now": now, "limit": limit})]


def events(case_id: str, after: int) -> Transaction[list[tuple[int, str, str]]]:
    """What happened to a case after one of its events: seq, event, data."""
    return [tuple(row) for row in (yield EVENTS, {"case_id": case_id, "after": after})]


def recent(since: int) -> Transaction[list[tuple[str, int]]]:
    """The cases with events since then: a hint for followers in other processes."""
    return [(case_id, seq) for case_id, seq in (yield RECENT, {"since": since})]


def spend(digest: str, now: int) -> Transaction[bool]:
    """Use up a nonce; False if it was used before."""
    if (yield SPENT, {"digest": digest}):
        return False
    yield SPEND, {"digest": digest, "at": now}  # a race ends in a unique violation, and is retried
    return True


def purge(before: int, limit: int, now: int) -> Transaction[int]:
    """Delete cases that ended before then, with all that belongs to them; returns how many."""
    rows: list[Any] = yield ENDED, {"before": before, "limit": limit}
    sizes: dict[str, int] = {}
    for case_id, key_id, size in rows:
        for statement in PURGE:
            yield statement, {"case_id": case_id}
        if key_id is not None:
            sizes[key_id] = sizes.get(key_id, 0) + size
    yield from budgets.case_purged(sizes)
    if rows:
        detail = {"count": len(rows), "ended_before": before}
        yield from audit.append([Entry("cases.purged", "cases", os_account(), now, detail)])
    return len(rows)
