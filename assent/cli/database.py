"""The database that every command works on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from assent.checkpointer.connect import checkpointer_from_url
from assent.checkpointer.sql import SqlCheckpointer
from assent.errors import StoreError

T = TypeVar("T")
URL_VARIABLE = "ASSENT_DATABASE_URL"
DEFAULT_URL = "sqlite:///assent.db"


def given_url() -> str:
    """What the environment says, or a file in the working directory."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def database_url() -> str:
    """The same, if it is a database. Raises `StoreError`."""
    return checked_url(given_url())


def checked_url(url: str) -> str:
    """The URL, if every command can find the same database there. Raises `StoreError`.

    A URL that names nothing would be memory, which ends with the command: nobody means that by leaving a path out.
    """
    if url.partition("://")[0].partition("+")[0].lower() == "sqlite" and url.endswith(("://", ":///")):
        raise StoreError(
            f"{URL_VARIABLE} names no file: sqlite:///path is one, and sqlite:///:memory: is memory, "
            "which lasts as long as the command"
        )
    checkpointer_from_url(url)
    return url


def on_database(work: Callable[[SqlCheckpointer], Awaitable[T]], *, acts: bool = False) -> T:
    """Open the database, do something with it, and close it; ``acts`` if the audit trail has rows of that."""

    async def run() -> T:
        async with checkpointer_from_url(database_url()) as checkpointer:
            result = await work(checkpointer)
            if acts:
                from assent.store.linking import link_if_possible

                await link_if_possible(checkpointer.engine)
            return result

    return asyncio.run(run())
