"""The table of data keys: found when a database is opened, made when it is first opened with a master key."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Integer, exists, insert, literal_column, select, update

from assent.store.statement import Statement, Transaction, param
from assent.store.tables import data_keys

_K = data_keys.c
_ONE = literal_column("1", Integer)


class DataKeyRow(NamedTuple):
    """A data key as it is stored: wrapped with the master key whose fingerprint is ``master``."""

    key_id: str
    wrapped: str
    master: str
    created_at: int
    """Milliseconds since 1970."""


ALL = Statement(select(*(_K[name] for name in DataKeyRow._fields)).order_by(_K.created_at, _K.key_id))
ADD = Statement(insert(data_keys).values({name: param(name) for name in DataKeyRow._fields}).inline())
FIRST = Statement(
    insert(data_keys).from_select(
        list(DataKeyRow._fields),
        select(*(param(name, _K[name].type).label(name) for name in DataKeyRow._fields)).where(
            ~exists(select(_ONE).select_from(data_keys.alias("others")))
        ),
    )
)
REWRAP = Statement(
    update(data_keys)
    .where(_K.key_id == param("key_id"), _K.master == param("seen"))
    .values(wrapped=param("wrapped"), master=param("master"))
)


def listing() -> Transaction[list[DataKeyRow]]:
    """All data keys, the oldest first; the last is the one in use."""
    return [DataKeyRow(*row) for row in (yield ALL, {})]


def first(row: DataKeyRow) -> Transaction[list[DataKeyRow]]:
    """Add the first key, unless another process was faster; all there are come back."""
    yield FIRST, row._asdict()
    return (yield from listing())


def add(row: DataKeyRow) -> Transaction[None]:
    """Add another key, which is the one in use from now on."""
    yield ADD, row._asdict()


def rewrap(row: DataKeyRow, seen: str) -> Transaction[bool]:
    """Store a key wrapped anew; False if another process has done so since."""
    return bool((yield REWRAP, {**row._asdict(), "seen": seen}))
