"""Encrypting what is stored already: values that are in the clear, or encrypted with an earlier data key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Column, Table, select, tuple_, update

from assent.store.all_tables import metadata
from assent.store.sealing import SealingEngine
from assent.store.statement import Statement, Transaction, param, place_of

PAGE_ROWS = 200


class Resealed(NamedTuple):
    """How far it is: rows of a table that were looked at, and values of them that were written anew."""

    table: str
    rows: int
    values: int


async def reseal(engine: SealingEngine) -> AsyncIterator[Resealed]:
    """Encrypt everything with the data key in use, a page of rows at a time; others may read and write meanwhile.

    Yields after each page what was done of its table so far. It may be run again if it was interrupted.
    """
    for table in metadata.sorted_tables:
        columns = [column for column in table.columns if column.info.get("sealed")]
        if not columns:
            continue
        work = _Table(table, columns)
        rows = values = 0
        after: Sequence[Any] | None = None
        while page := await engine.plain.read(partial(work.page, after)):
            rows += len(page)
            values += await engine.plain.write(partial(work.write, engine, page))
            after = page[-1][: len(work.key)]
            yield Resealed(table.name, rows, values)


class _Table:
    """A table with columns that may be encrypted."""

    def __init__(self, table: Table, columns: Sequence[Column[Any]]) -> None:
        self.key = list(table.primary_key)
        self._columns = columns
        of_page = select(*self.key, *columns).order_by(*self.key).limit(PAGE_ROWS)
        behind = tuple_(*self.key) > tuple_(*(param(it.name, it.type) for it in self.key))
        self._first, self._next = Statement(of_page), Statement(of_page.where(behind))
        this = [it == param(it.name) for it in self.key]
        self._updates = [
            Statement(update(table).where(*this, it == param("old", it.type)).values({it: param("new")}))
            for it in columns
        ]

    def page(self, after: Sequence[Any] | None) -> Transaction[list[Sequence[Any]]]:
        """The rows behind a key: their keys, and the columns as they are stored."""
        if after is None:
            return list((yield self._first, {}))
        return list((yield self._next, self._named(after)))

    def write(self, engine: SealingEngine, page: Sequence[Sequence[Any]]) -> Transaction[int]:
        """Write those values anew that need it, unless they have changed since; returns how many."""
        count, ring = 0, engine.keyring
        for row in page:
            for column, statement, old in zip(
                self._columns, self._updates, row[len(self.key) :], strict=True
            ):
                if old is not None and not ring.is_current(old):
                    place = place_of(column)
                    new = ring.seal(place, ring.open(place, old))
                    count += yield statement, {**self._named(row), "old": old, "new": new}
        return count

    def _named(self, row: Sequence[Any]) -> dict[str, Any]:
        return {column.name: value for column, value in zip(self.key, row, strict=False)}
