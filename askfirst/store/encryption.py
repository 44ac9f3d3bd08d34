"""Encryption at rest: data keys, an engine that encrypts and decrypts, and values encrypted anew."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Column, Table, select, tuple_, update

from askfirst.encryption_keys import KEY_BYTES, MasterKeys
from askfirst.errors import StoreError
from askfirst.store.case_tables import metadata
from askfirst.store.data_keys import DataKeyRow, insert_data_key, kept_data_keys, rewrapped_data_key
from askfirst.store.engine import Engine
from askfirst.store.statement import Params, Statement, Transaction, param, place_of
from askfirst.store.threads import Renewal
from askfirst.store.wakeups import Hub

# Encryption of values: each with a data key, by AES-256-GCM, bound to the column it stands in.


PREFIX = "aes1:"
"""What an encrypted value begins with. A plain one is JSON, which never does."""
_NONCE_BYTES = 12


class Keyring:
    """The data keys of a database, opened; ``current`` is the id of the one that new values are written with."""

    def __init__(self, data_keys: Mapping[str, bytes], current: str) -> None:
        self._ciphers = {key_id: AESGCM(key) for key_id, key in data_keys.items()}
        self.current = current

    def seal(self, place: str, value: str) -> str:
        """A value encrypted, for a place (``"requests.payload"``) and no other."""
        return f"{PREFIX}{self.current}:{_encrypted(self._ciphers[self.current], value.encode(), place)}"

    def open(self, place: str, value: str) -> str:
        """The value that was sealed for this place; one that is not encrypted comes back as it is.

        Raises `StoreError` for one that cannot be opened.
        """
        if not value.startswith(PREFIX):
            return value
        key_id, _, data = value[len(PREFIX) :].partition(":")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise StoreError(
                f"a value in {place} was encrypted with a key that came after this process had opened the "
                "database: close it, and open it anew"
            )
        try:
            return _decrypted(cipher, data, place).decode()
        except (InvalidTag, ValueError):
            raise StoreError(f"a value in {place} was altered: it cannot be decrypted") from None

    def is_current(self, value: str) -> bool:
        """Whether a stored value is encrypted with the key in use."""
        return value.startswith(f"{PREFIX}{self.current}:")

    def __repr__(self) -> str:
        return f"Keyring({len(self._ciphers)} keys)"


def new_data_key() -> tuple[str, bytes]:
    """A fresh data key with its id."""
    return secrets.token_hex(8), secrets.token_bytes(KEY_BYTES)


def wrap(masters: MasterKeys, key_id: str, data_key: bytes) -> str:
    """A data key, encrypted with the master key in use and bound to its id."""
    return _encrypted(AESGCM(masters.key), data_key, key_id)


def unwrap(masters: MasterKeys, key_id: str, wrapped: str, master: str) -> bytes:
    """The data key that was wrapped with the master key of this fingerprint. Raises `StoreError`."""
    key = masters.find(master)
    if key is None:
        raise StoreError(
            f"this database is encrypted with another key, of fingerprint {master}: give that one as well, after "
            "a comma or on a line of its own"
        )
    try:
        return _decrypted(AESGCM(key), wrapped, key_id)
    except (InvalidTag, ValueError):
        raise StoreError(
            f"the data key {key_id} of this database was altered: it cannot be decrypted"
        ) from None


def _encrypted(cipher: AESGCM, data: bytes, place: str) -> str:
    nonce = secrets.token_bytes(_NONCE_BYTES)  # random: a key is good for four thousand million values
    return base64.b64encode(nonce + cipher.encrypt(nonce, data, place.encode())).decode()


def _decrypted(cipher: AESGCM, text: str, place: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], place.encode())


# Encryption at rest: an engine that encrypts on the way in and decrypts on the way out.
#
# Transactions know nothing of it. They are generators that yield statements with parameters and receive rows
# (see `statement`); this engine stands between them and the one that runs them.


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
    await engine.plain.write(partial(insert_data_key, fresh_ring(masters)))
    engine.keyring = ring(await engine.plain.read(kept_data_keys), masters)


async def rewrap_data_keys(engine: SealingEngine, masters: MasterKeys) -> int:
    """Wrap all data keys with the master key in use; returns how many were wrapped with another."""
    count = 0
    for row in await engine.plain.read(kept_data_keys):
        if row.master != masters.current:
            data_key = unwrap(masters, row.key_id, row.wrapped, row.master)
            new = row._replace(wrapped=wrap(masters, row.key_id, data_key), master=masters.current)
            count += await engine.plain.write(partial(rewrapped_data_key, new, row.master))
    return count


def fresh_ring(masters: MasterKeys) -> DataKeyRow:
    """A new data key, wrapped."""
    key_id, data_key = new_data_key()
    return DataKeyRow(key_id, wrap(masters, key_id, data_key), masters.current, time.time_ns() // 1_000_000)


def ring(rows: Sequence[DataKeyRow], masters: MasterKeys) -> Keyring:
    """The data keys of a database, opened. Raises `StoreError` if a master key to them is missing."""
    keys = {row.key_id: unwrap(masters, row.key_id, row.wrapped, row.master) for row in rows}
    return Keyring(keys, rows[-1].key_id)


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
