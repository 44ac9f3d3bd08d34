"""Saying which extra is missing, where a database's libraries are."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from assent.errors import MissingExtra

_LIBRARIES = {"alembic", "asyncmy", "asyncpg", "greenlet", "sqlalchemy"}


@contextmanager
def needs(what: str, extra: str) -> Generator[None]:
    """Turn the failing import of a database library into `MissingExtra`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        raise MissingExtra(what, extra) from error
