"""What the checkpointers for databases share: naming a missing extra, naming an address."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from assent.errors import MissingExtra

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
    """As much of a database's address as may be shown: host, port and name."""
    _, is_address, rest = dsn.partition("://")
    return rest.partition("?")[0].rpartition("@")[2] if is_address else "?"
