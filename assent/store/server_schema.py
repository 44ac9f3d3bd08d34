"""Migrating a server's database, through its asynchronous driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import create_async_engine

from assent.store.schema import upgrade

_LOCKS = {  # 20 processes may open a fresh database at once
    "postgresql": text("SELECT pg_advisory_xact_lock(7286889413)"),
    "mysql": text("SELECT GET_LOCK(CONCAT('assent_', LEFT(SHA2(DATABASE(), 256), 32)), 120)"),
}


async def migrate(url: str, connect: Callable[[], Awaitable[Any]]) -> None:
    """Bring the schema up to date, in a thread of its own: Alembic reads files and takes its time."""
    await asyncio.to_thread(asyncio.run, _migrate(url, connect))


async def _migrate(url: str, connect: Callable[[], Awaitable[Any]]) -> None:
    engine = create_async_engine(url, async_creator=connect, poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            await connection.execute(_LOCKS[connection.dialect.name])
            await connection.run_sync(upgrade)
            await connection.commit()
    finally:
        await engine.dispose()
