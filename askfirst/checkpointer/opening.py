"""Opening a database: the error for a missing extra, the address without its password, and encryption."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from askfirst.encryption_keys import FILE_VARIABLE, KEY_VARIABLE, MasterKeys
from askfirst.errors import MissingExtra, StoreError

if TYPE_CHECKING:
    from askfirst.store.engine import Engine


# Texts for errors: the extra that is missing, and an address without its password.


_LIBRARIES = {"alembic", "asyncmy", "asyncpg", "cryptography", "greenlet", "sqlalchemy"}


@contextmanager
def needs(what: str, extra: str) -> Generator[None]:
    """Turn the failing import of a database library into `MissingExtra`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        raise MissingExtra(what, extra) from error


def without_login(dsn: str) -> str:
    """A database's address without user and password, for texts: host, port and name."""
    _, is_address, rest = dsn.partition("://")
    return rest.partition("?")[0].rpartition("@")[2] if is_address else "?"


GROWTH = 1.4
"""An upper bound for the length of an encrypted value's text, divided by the length of the value."""


async def encrypting(engine: Engine, masters: MasterKeys | None) -> Engine:
    """The open engine, wrapped so that it encrypts, if there is a master key; else the engine itself.

    Closes the engine and raises `StoreError` if the database is encrypted and its key was not given.
    """
    from askfirst.store import data_keys

    try:
        if masters is None:
            if await engine.read(data_keys.kept_data_keys):
                raise StoreError(
                    f"this database is encrypted: set {KEY_VARIABLE} to its key, or {FILE_VARIABLE} to a file that "
                    "has it"
                )
            return engine
        with needs("Encryption", "encryption"):
            from askfirst.store.encryption import SealingEngine, ring
            from askfirst.store.encryption import fresh_ring as fresh
        rows = await engine.read(data_keys.kept_data_keys)
        if not rows:
            rows = await engine.write(partial(data_keys.first_data_key, fresh(masters)))
        return SealingEngine(engine, ring(rows, masters))
    except BaseException:
        await engine.close()
        raise
