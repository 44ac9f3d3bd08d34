"""Transactions on who may reach a case: API keys, e-mail codes, polls counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic_core import from_json, to_json
from sqlalchemy import Integer, and_, delete, func, insert, literal_column, select, update

from askfirst.errors import CaseNotFound
from askfirst.store import audit, case_tables, cases
from askfirst.store.audit import Entry
from askfirst.store.case_rows import CaseRow
from askfirst.store.case_tables import cases as case_table
from askfirst.store.case_tables import email_codes, keys, polls
from askfirst.store.statement import Statement, Transaction, param

# API keys, stored as hashes.


_K = case_tables.keys.c


class KeyRow(NamedTuple):
    """A key's columns, in the order in which they are read."""

    key_id: str
    name: str
    """As JSON: any text."""
    key_hash: str
    created_at: int
    revoked_at: int | None
    write_id: int


KEY_COLUMNS = tuple(_K[name] for name in KeyRow._fields)
_THIS_KEY = _K.key_id == param("key_id")
INSERT_KEY = Statement(
    insert(case_tables.keys).values({name: param(name) for name in KeyRow._fields}).inline()
)
BY_HASH = Statement(select(*KEY_COLUMNS).where(_K.key_hash == param("key_hash")))
REVOKED_AT = Statement(select(_K.revoked_at).where(_THIS_KEY))
LOCKED_KEY = Statement(select(*KEY_COLUMNS).where(_THIS_KEY).with_for_update())
REVOKE_KEY = Statement(
    update(case_tables.keys)
    .where(_THIS_KEY, _K.revoked_at.is_(None))
    .values(revoked_at=param("revoked_at"), write_id=param("write_id"))
)
ALL_KEYS = Statement(select(*KEY_COLUMNS).order_by(_K.created_at, _K.key_id))


def issue_key(row: KeyRow, entries: Sequence[Entry]) -> Transaction[KeyRow]:
    """Keep a new key."""
    yield INSERT_KEY, row._asdict()
    yield from audit.append(entries)
    return row


def key_issued(row: KeyRow) -> Transaction[KeyRow | None]:
    """The check after an indeterminate commit of `issue_key`."""
    rows = yield LOCKED_KEY, {"key_id": row.key_id}
    return KeyRow(*rows[0]) if rows else None


def revoke_key(key_id: str, now: int, write_id: int, entries: Sequence[Entry]) -> Transaction[bool]:
    """Revoke a key; False if there is none, or it is revoked already."""
    if not (yield REVOKE_KEY, {"key_id": key_id, "revoked_at": now, "write_id": write_id}):
        return False
    yield from audit.append(entries)
    return True


def key_revoked(key_id: str, write_id: int) -> Transaction[bool | None]:
    """The check after an indeterminate commit of `revoke_key`: True if this write revoked the key, else None."""
    rows = yield LOCKED_KEY, {"key_id": key_id}
    return True if rows and KeyRow(*rows[0]).write_id == write_id else None


def key_by_hash(key_hash: str) -> Transaction[KeyRow | None]:
    """The key with this hash, revoked or not."""
    rows = yield BY_HASH, {"key_hash": key_hash}
    return KeyRow(*rows[0]) if rows else None


def is_revoked(key_id: str) -> Transaction[bool]:
    """Whether there is such a key and it is revoked."""
    rows = yield REVOKED_AT, {"key_id": key_id}
    return bool(rows) and rows[0][0] is not None


def all_keys() -> Transaction[list[KeyRow]]:
    """All keys, oldest first."""
    return [KeyRow(*row) for row in (yield ALL_KEYS, {})]


# E-mail codes: salted hashes with limited tries, used once, under the lock of their case.


_CODES = email_codes.c
_ONE = literal_column("1", Integer)
_OF_CASE = _CODES.case_id == param("case_id")


class CodeRow(NamedTuple):
    """A code's columns, in the order in which they are read."""

    case_id: str
    code_hash: str
    salt: str
    place: int
    """Which of the case's addresses it was sent to."""
    tries: int
    sent_at: int
    expires_at: int
    used_at: int | None


CODE_COLUMNS = tuple(_CODES[name] for name in CodeRow._fields)
_LIVE = (_OF_CASE, _CODES.used_at.is_(None), _CODES.expires_at > param("now"), _CODES.tries < param("most"))
INSERT_CODE = Statement(insert(email_codes).values({name: param(name) for name in CodeRow._fields}).inline())
FORGET_CODES = Statement(delete(email_codes).where(_OF_CASE, _CODES.sent_at <= param("since")))
COUNT_CODES = Statement(select(func.count()).select_from(email_codes).where(_OF_CASE))
LIVE_CODES = Statement(select(*CODE_COLUMNS).where(*_LIVE))
TRY_CODES = Statement(update(email_codes).where(*_LIVE).values(tries=_CODES.tries + _ONE))
USE_CODE = Statement(
    update(email_codes)
    .where(_OF_CASE, _CODES.code_hash == param("code_hash"), _CODES.used_at.is_(None))
    .values(used_at=param("now"))
)


def keep_code(code: CodeRow, since: int, most: int, entries: Sequence[Entry]) -> Transaction[bool]:
    """Store a code, unless the case has ``most`` of them since then; older ones are deleted."""
    yield from _locked(code.case_id)
    yield FORGET_CODES, {"case_id": code.case_id, "since": since}
    [(known,)] = yield COUNT_CODES, {"case_id": code.case_id}
    if known >= most:
        return False
    yield INSERT_CODE, code._asdict()
    yield from audit.append(entries)
    return True


def try_codes(case_id: str, now: int, most: int) -> Transaction[list[CodeRow]]:
    """The codes that can be used now. The try is counted for each, before the codes are compared."""
    yield from _locked(case_id)
    live = {"case_id": case_id, "now": now, "most": most}
    codes = [CodeRow(*row) for row in (yield LIVE_CODES, live)]
    if codes:
        yield TRY_CODES, live
    return codes


def use_code(code: CodeRow, now: int) -> Transaction[bool]:
    """Use a code up (compare-and-set); False if it was used before."""
    return (yield USE_CODE, {"case_id": code.case_id, "code_hash": code.code_hash, "now": now}) == 1


def _locked(case_id: str) -> Transaction[None]:
    if (yield from cases.locked(case_id)) is None:
        raise CaseNotFound(case_id)


_C, _KEYS, _P = case_table.c, keys.c, polls.c
_POLLS = and_(_P.case_id == _C.case_id, _P.kind == literal_column("'poll'", _P.kind.type))
_THIS_CASE = and_(_P.case_id == param("case_id"), _P.kind == param("kind"))

# Authentication, ownership and the counted polls of a case, by index in one statement.
BY_KEY = Statement(
    select(_KEYS.key_id, _P.times, *cases.COLUMNS)
    .select_from(
        keys.outerjoin(case_table, and_(_C.case_id == param("case_id"), _C.key_id == _KEYS.key_id)).outerjoin(
            polls, _POLLS
        )
    )
    .where(_KEYS.key_hash == param("key_hash"), _KEYS.revoked_at.is_(None))
)
BY_OWNER = Statement(
    select(_C.key_id, _P.times, *cases.COLUMNS)
    .select_from(case_table.outerjoin(polls, _POLLS))
    .where(_C.case_id == param("case_id"), _C.key_id == param("owner"))
)
LOCKED_POLLS = Statement(select(_P.times).where(_THIS_CASE).with_for_update())
_COUNTED = {name: param(name) for name in ("times", "busy", "at")}
INSERT_POLLS = Statement(
    insert(polls).values(case_id=param("case_id"), kind=param("kind"), **_COUNTED).inline()
)
UPDATE_POLLS = Statement(update(polls).where(_THIS_CASE).values(_COUNTED))
BUSY = Statement(
    select(_P.case_id).where(
        _P.busy == literal_column("1", Integer), _P.at >= param("since"), _P.kind == param("kind")
    )
)


class PolledCase(NamedTuple):
    """What a caller finds under a case's id."""

    owner: str
    """The key's id."""
    row: CaseRow | None
    """None where there is no such case, or it is not the caller's."""
    times: Sequence[int]
    """The times of its polls that are counted in the store."""


class Limit(NamedTuple):
    """A rate limit: ``most`` times in ``window`` milliseconds; up to ``few`` times are not busy."""

    most: int
    window: int
    few: int

    def recent(self, times: Sequence[int], now: int) -> list[int]:
        """The times within the window, oldest first. Clocks of several machines differ: one may lie in the future."""
        return sorted(at for at in times if abs(now - at) < self.window)

    def wait(self, recent: Sequence[int], now: int) -> int | None:
        """How many milliseconds to wait until the next time is allowed; None if it is allowed now."""
        return None if len(recent) < self.most else max(1, recent[-self.most] + self.window - now)


def case_by_key(case_id: str, key_hash: str) -> Transaction[PolledCase | None]:
    """What the holder of a key finds under a case's id; None if the key is unknown or revoked."""
    rows = yield BY_KEY, {"case_id": case_id, "key_hash": key_hash}
    if not rows:
        return None
    owner, times, *columns = rows[0]
    return PolledCase(owner, None if columns[0] is None else CaseRow(*columns), _times(times))


def case_by_owner(case_id: str, owner: str) -> Transaction[PolledCase]:
    """What an owner, authenticated by the host, finds under a case's id."""
    rows = yield BY_OWNER, {"case_id": case_id, "owner": owner}
    if not rows:
        return PolledCase(owner, None, ())
    _, times, *columns = rows[0]
    return PolledCase(owner, CaseRow(*columns), _times(times))


def events_for(case_id: str, after: int, key_id: str) -> Transaction[list[tuple[int, str, str]] | None]:
    """What happened to a case after one of its events: seq, event, data; None if the key is revoked."""
    found = yield from cases.events(case_id, after)
    return None if (yield from is_revoked(key_id)) else found


def count_poll(
    case_id: str, kind: str, kept: Sequence[int], now: int, limit: Limit, *, one_more: bool = True
) -> Transaction[int | None]:
    """Count one more poll, and those that a process has kept in memory; or the milliseconds to wait.

    Kept polls are counted in any case: they were answered.
    """
    rows = yield LOCKED_POLLS, {"case_id": case_id, "kind": kind}
    recent = limit.recent([*(_times(rows[0][0]) if rows else ()), *kept], now)
    wait = limit.wait(recent, now) if one_more else None
    added = [now] if one_more and wait is None else []
    if not added and not kept:
        return wait
    times = [*recent, *added][-limit.most :]
    params = {
        "case_id": case_id,
        "kind": kind,
        "times": to_json(times).decode(),
        "busy": int(len(times) > limit.few),
        "at": now,
    }
    yield (
        (UPDATE_POLLS if rows else INSERT_POLLS),
        params,
    )  # a race to be first ends in a unique violation, and is retried
    return wait


def busy_cases(since: int, kind: str) -> Transaction[list[str]]:
    """Cases that were polled often since then."""
    return [case_id for (case_id,) in (yield BUSY, {"since": since, "kind": kind})]


def _times(text: str | None) -> list[int]:
    return [] if text is None else from_json(text)
