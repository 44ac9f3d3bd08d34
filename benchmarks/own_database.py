"""A temporary PostgreSQL database for a benchmark."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg


@asynccontextmanager
async def own_database(purpose: str) -> AsyncIterator[str]:
    """The address of a new PostgreSQL database, which is dropped at the end."""
    server = os.environ.get("ASKFIRST_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
    name = f"askfirst_{purpose}_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()
