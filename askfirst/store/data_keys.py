"""Transactions on data keys: the keys that values are encrypted with, each wrapped with a master key.

Every store looks for them when it is opened, also one that is not encrypted, so nothing here needs the extra
``encryption``.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Integer, exists, insert, literal_column, select, update

from askfirst.store.statement import Statement, Transaction, param
from askfirst.store.tables import data_keys

_K = data_keys.c
_ONE = literal_column("1", Integer)


class DataKeyRow(NamedTuple):
    """A data key as it is stored: wrapped with the master key whose fingerprint is ``master``."""

    key_id: str
    wrapped: str
    master: str
    created_at: int
    """Milliseconds since 1970."""


ALL_DATA_KEYS = Statement(
    select(*(_K[name] for name in DataKeyRow._fields)).order_by(_K.created_at, _K.key_id)
)
ADD_DATA_KEY = Statement(
    insert(data_keys).values({name: param(name) for name in DataKeyRow._fields}).inline()
)
FIRST_DATA_KEY = Statement(
    insert(data_keys).from_select(
        list(DataKeyRow._fields),
        select(*(param(name, _K[name].type).label(name) for name in DataKeyRow._fields)).where(
            ~exists(select(_ONE).select_from(data_keys.alias("others")))
        ),
    )
)
REWRAP_DATA_KEY = Statement(
    update(data_keys)
    .where(_K.key_id == param("key_id"), _K.master == param("seen"))
    .values(wrapped=param("wrapped"), master=param("master"))
)


def kept_data_keys() -> Transaction[list[DataKeyRow]]:
    """All data keys, the oldest first; the last is the one in use."""
    return [DataKeyRow(*row) for row in (yield ALL_DATA_KEYS, {})]


def first_data_key(row: DataKeyRow) -> Transaction[list[DataKeyRow]]:
    """Add the first key, unless another process was faster; all there are come back."""
    yield FIRST_DATA_KEY, row._asdict()
    return (yield from kept_data_keys())


def insert_data_key(row: DataKeyRow) -> Transaction[None]:
    """Add another key, which is the one in use from now on."""
    yield ADD_DATA_KEY, row._asdict()


def rewrapped_data_key(row: DataKeyRow, seen: str) -> Transaction[bool]:
    """Store a key wrapped anew; False if another process has done so since."""
    return bool((yield REWRAP_DATA_KEY, {**row._asdict(), "seen": seen}))
