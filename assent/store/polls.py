"""A case as whoever opened it asks for it, and how often that happens, counted for all processes together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic_core import from_json, to_json
from sqlalchemy import Integer, and_, insert, literal_column, select, update

from assent.store import cases
from assent.store.case_rows import CaseRow
from assent.store.case_tables import cases as case_table
from assent.store.case_tables import polls
from assent.store.service_tables import keys
from assent.store.statement import Statement, Transaction, param

_C, _K, _P = case_table.c, keys.c, polls.c
_POLLS = and_(_P.case_id == _C.case_id, _P.kind == literal_column("'poll'", _P.kind.type))
_THIS = and_(_P.case_id == param("case_id"), _P.kind == param("kind"))

# Whether a key is good, whether the case is its own and how often it was asked for: all by keys, in one.
BY_KEY = Statement(
    select(_K.key_id, _P.times, *cases.COLUMNS)
    .select_from(
        keys.outerjoin(case_table, and_(_C.case_id == param("case_id"), _C.key_id == _K.key_id)).outerjoin(
            polls, _POLLS
        )
    )
    .where(_K.key_hash == param("key_hash"), _K.revoked_at.is_(None))
)
BY_OWNER = Statement(
    select(_C.key_id, _P.times, *cases.COLUMNS)
    .select_from(case_table.outerjoin(polls, _POLLS))
    .where(_C.case_id == param("case_id"), _C.key_id == param("owner"))
)
LOCKED = Statement(select(_P.times).where(_THIS).with_for_update())
_COUNTED = {name: param(name) for name in ("times", "busy", "at")}
INSERT = Statement(insert(polls).values(case_id=param("case_id"), kind=param("kind"), **_COUNTED).inline())
UPDATE = Statement(update(polls).where(_THIS).values(_COUNTED))
BUSY = Statement(
    select(_P.case_id).where(
        _P.busy == literal_column("1", Integer), _P.at >= param("since"), _P.kind == param("kind")
    )
)


class Asked(NamedTuple):
    """What a caller finds under a case's id."""

    owner: str
    """The key's id."""
    row: CaseRow | None
    """None where there is no such case, or it is not the caller's."""
    times: Sequence[int]
    """When it was asked for, as far as that is counted in the store."""


class Limit(NamedTuple):
    """How often is too often: ``most`` times in ``window`` milliseconds; ``few`` times are nothing to look at."""

    most: int
    window: int
    few: int

    def recent(self, times: Sequence[int], now: int) -> list[int]:
        """Those of the times that count, oldest first; clocks of several machines differ a little."""
        return sorted(at for at in times if abs(now - at) < self.window)

    def wait(self, recent: Sequence[int], now: int) -> int | None:
        """None if there may be one more; else after how many milliseconds."""
        return None if len(recent) < self.most else max(1, recent[-self.most] + self.window - now)


def by_key(case_id: str, key_hash: str) -> Transaction[Asked | None]:
    """What whoever shows a key finds; None if there is no such key, or it is revoked."""
    rows = yield BY_KEY, {"case_id": case_id, "key_hash": key_hash}
    if not rows:
        return None
    owner, times, *columns = rows[0]
    return Asked(owner, None if columns[0] is None else CaseRow(*columns), _times(times))


def by_owner(case_id: str, owner: str) -> Transaction[Asked]:
    """What an owner finds who is known by other means than a key."""
    rows = yield BY_OWNER, {"case_id": case_id, "owner": owner}
    if not rows:
        return Asked(owner, None, ())
    _, times, *columns = rows[0]
    return Asked(owner, CaseRow(*columns), _times(times))


def count(
    case_id: str, kind: str, kept: Sequence[int], now: int, limit: Limit, *, one_more: bool = True
) -> Transaction[int | None]:
    """Count one more, and those that a process has kept to itself; or after how many milliseconds it may be.

    Those that were kept are counted in any case: they were answered.
    """
    rows = yield LOCKED, {"case_id": case_id, "kind": kind}
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
        (UPDATE if rows else INSERT),
        params,
    )  # a race to be first ends in a unique violation, and is run again
    return wait


def busy(since: int, kind: str) -> Transaction[list[str]]:
    """Cases that were often asked for since then."""
    return [case_id for (case_id,) in (yield BUSY, {"since": since, "kind": kind})]


def _times(text: str | None) -> list[int]:
    return [] if text is None else from_json(text)
