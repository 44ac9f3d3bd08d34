"""URLs that name no database: refused when they are given, in a sentence that says how one is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.cli.output import checked_url, database_url
from askfirst.errors import StoreError
from askfirst.service.app import create_app


@pytest.fixture(autouse=True)
def no_postgres_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGDATABASE", raising=False)


@pytest.mark.parametrize("url", [None, b"sqlite:///t.db", Path("t.db")], ids=["none", "bytes", "path"])
def test_what_is_no_text_is_no_url(url: Any) -> None:
    with pytest.raises(StoreError, match=rf"^a store's URL is a text, not {type(url).__name__}$"):
        checkpointer_from_url(url)


def test_an_sqlite_url_without_a_path_is_refused() -> None:
    with pytest.raises(StoreError, match=r"write sqlite:///path, or sqlite:///:memory: for"):
        checkpointer_from_url("sqlite:///")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite+aiosqlite://", "SQLITE:///"])
def test_the_command_takes_no_memory_that_nobody_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_DATABASE_URL", url)
    with pytest.raises(StoreError, match=r"ASKFIRST_DATABASE_URL names no file: sqlite:///path .*:memory:"):
        database_url()


def test_memory_by_its_name_is_taken() -> None:
    assert checked_url("sqlite:///:memory:") == "sqlite:///:memory:"
    assert type(checkpointer_from_url("sqlite:///:memory:")) is MemoryCheckpointer


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgres://ann:hunter2@db",
        "postgresql://ann:hunter2@db/",
        "postgresql+asyncpg://db:5432/?sslmode=require",
    ],
)
def test_a_postgresql_url_without_a_database_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="ends with the database's name: postgresql://") as caught:
        checkpointer_from_url(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql:///x", "postgresql://db/x", "postgresql://db?dbname=x"])
def test_a_postgresql_url_may_say_it_in_several_ways(url: str) -> None:
    assert type(checkpointer_from_url(url)) is PostgresCheckpointer


def test_the_variable_of_postgresql_names_a_database_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATABASE", "x")
    assert type(checkpointer_from_url("postgresql://db")) is PostgresCheckpointer


@pytest.mark.parametrize("url", ["foo://x", "sqlite:///", "postgresql://db"])
def test_the_service_refuses_it_when_it_is_made(url: str) -> None:
    with pytest.raises(StoreError):
        create_app(url, base_url="https://a.example")
