"""The database that every command works on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from assent.checkpointer.connect import checkpointer_from_url
from assent.checkpointer.sql import SqlCheckpointer

T = TypeVar("T")
URL_VARIABLE = "ASSENT_DATABASE_URL"
DEFAULT_URL = "sqlite:///assent.db"


def database_url() -> str:
    """What the environment says, or a file in the working directory."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def on_database(work: Callable[[SqlCheckpointer], Awaitable[T]]) -> T:
    """Open the database, do something with it, and close it."""

    async def run() -> T:
        async with checkpointer_from_url(database_url()) as checkpointer:
            return await work(checkpointer)

    return asyncio.run(run())
