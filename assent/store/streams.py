"""Event streams that are open, in all processes: counted for each key and each address.

A process says every now and then that its streams are open still; those of one that died count no longer then.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import delete, func, insert, select, update

from assent.store import usage
from assent.store.budget_tables import streams
from assent.store.statement import Statement, Transaction, param

_S = streams.c


class StreamRow(NamedTuple):
    """A stream's columns."""

    stream_id: str
    process: str
    key_id: str
    address: str | None
    until: int


_OPEN = _S.until > param("now")
OF_KEY = Statement(select(func.count()).where(_S.key_id == param("key_id"), _OPEN))
OF_ADDRESS = Statement(select(func.count()).where(_S.address == param("address"), _OPEN))
INSERT = Statement(insert(streams).values({name: param(name) for name in StreamRow._fields}).inline())
RENEW = Statement(update(streams).where(_S.process == param("process")).values(until=param("until")))
CLOSE = Statement(delete(streams).where(_S.stream_id == param("stream_id")))
FORGET = Statement(delete(streams).where(_S.until <= param("now")))


def begin(row: StreamRow, now: int, of_key: int, of_address: int) -> Transaction[str | None]:
    """Note a stream; or the name of the budget that has none left, which the number of streams is held below."""
    yield usage.LOCKED, {"key_id": row.key_id}  # one at a time for each key: together they are no more
    [(count,)] = yield OF_KEY, {"key_id": row.key_id, "now": now}
    if count >= of_key:
        return "streams_per_key"
    if row.address is not None:
        [(count,)] = yield OF_ADDRESS, {"address": row.address, "now": now}
        if count >= of_address:
            return "streams_per_address"
    yield INSERT, row._asdict()
    return None


def renew(process: str, until: int) -> Transaction[int]:
    """Say that a process's streams are open still; returns how many there are."""
    return (yield RENEW, {"process": process, "until": until})


def end(stream_id: str) -> Transaction[None]:
    """Note that a stream has ended."""
    yield CLOSE, {"stream_id": stream_id}


def forget(now: int) -> Transaction[int]:
    """Forget the streams of processes that died; returns how many there were."""
    return (yield FORGET, {"now": now})
