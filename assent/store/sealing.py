"""Encryption at rest: an engine that encrypts on the way in and decrypts on the way out.

Transactions know nothing of it. They are generators that yield statements with parameters and receive rows
(see `statement`); this engine stands between them and the one that runs them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from assent.master_keys import MasterKeys
from assent.store import data_keys
from assent.store.data_keys import DataKeyRow
from assent.store.engine import Engine
from assent.store.keyring import Keyring, new_data_key, unwrap, wrap
from assent.store.renewals import Renewal
from assent.store.statement import Params, Statement, Transaction
from assent.store.wakeups import Hub

T = TypeVar("T")


class SealingEngine:
    """An open engine whose sealed columns are encrypted with the data keys of a ring."""

    def __init__(self, engine: Engine, keyring: Keyring) -> None:
        self.plain = engine
        """The engine below, which sees what is stored as it is stored."""
        self.keyring = keyring
        self.hub: Hub = engine.hub

    async def open(self) -> None:
        """The engine below is open already."""

    async def close(self) -> None:
        """Close the engine below."""
        await self.plain.close()

    def write(
        self,
        transaction: Callable[[], Transaction[T]],
        landed: Callable[[], Transaction[T | None]] | None = None,
        *,
        behind: bool = False,
        at_once: bool = False,
    ) -> asyncio.Future[T]:
        """Run a transaction and commit it; see `Engine.write`."""
        if isinstance(
            transaction, Renewal
        ):  # an engine knows it by its type, and it holds nothing to encrypt
            return self.plain.write(cast("Callable[[], Transaction[T]]", transaction))
        check = None if landed is None else partial(self._sealed, landed)
        return self.plain.write(partial(self._sealed, transaction), check, behind=behind, at_once=at_once)

    def read(self, transaction: Callable[[], Transaction[T]]) -> asyncio.Future[T]:
        """Run statements that only read."""
        return self.plain.read(partial(self._sealed, transaction))

    def _sealed(self, transaction: Callable[[], Transaction[T]]) -> Transaction[T]:
        steps, answer = transaction(), None
        while True:
            try:
                statement, params = steps.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = self._opened(statement, (yield statement, self._closed(statement, params)))

    def _closed(self, statement: Statement, params: Params) -> Params:
        places = statement.sealed.params
        if not places:
            return params
        if isinstance(params, Mapping):
            return self._row_closed(places, params)
        return [self._row_closed(places, row) for row in params]

    def _row_closed(self, places: Mapping[str, str], params: Mapping[str, Any]) -> Mapping[str, Any]:
        seal = self.keyring.seal
        closed = {
            name: seal(place, params[name]) for name, place in places.items() if params.get(name) is not None
        }
        return {**params, **closed} if closed else params

    def _opened(self, statement: Statement, answer: Any) -> Any:
        places = statement.sealed.columns
        if not places or not answer:
            return answer
        return [self._row_opened(places, row) for row in answer]

    def _row_opened(self, places: Mapping[int, str], row: Sequence[Any]) -> tuple[Any, ...]:
        values = list(row)
        for at, place in places.items():
            value: Any = values[at] if at < len(values) else None
            if isinstance(value, str):
                values[at] = self.keyring.open(place, value)
            elif isinstance(value, list):
                values[at] = [self.keyring.open(place, each) for each in cast("list[str]", value)]
        return tuple(values)


async def add_data_key(engine: SealingEngine, masters: MasterKeys) -> None:
    """Make a new data key and write with it from now on, here and in every process that opens the database."""
    await engine.plain.write(partial(data_keys.add, fresh(masters)))
    engine.keyring = ring(await engine.plain.read(data_keys.listing), masters)


async def rewrap(engine: SealingEngine, masters: MasterKeys) -> int:
    """Wrap all data keys with the master key in use; returns how many were wrapped with another."""
    count = 0
    for row in await engine.plain.read(data_keys.listing):
        if row.master != masters.current:
            data_key = unwrap(masters, row.key_id, row.wrapped, row.master)
            new = row._replace(wrapped=wrap(masters, row.key_id, data_key), master=masters.current)
            count += await engine.plain.write(partial(data_keys.rewrap, new, row.master))
    return count


def fresh(masters: MasterKeys) -> DataKeyRow:
    """A new data key, wrapped."""
    key_id, data_key = new_data_key()
    return DataKeyRow(key_id, wrap(masters, key_id, data_key), masters.current, time.time_ns() // 1_000_000)


def ring(rows: Sequence[DataKeyRow], masters: MasterKeys) -> Keyring:
    """The data keys of a database, opened. Raises `StoreError` if a master key to them is missing."""
    keys = {row.key_id: unwrap(masters, row.key_id, row.wrapped, row.master) for row in rows}
    return Keyring(keys, rows[-1].key_id)
