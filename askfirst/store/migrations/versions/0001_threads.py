"""Threads, messages, runs, requests, effects."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text, text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

revision = "0001"
down_revision = None

ID = String(255).with_variant(String(255, collation="C"), "postgresql")
BODY: TypeEngine[str] = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}
SMALL: dict[str, Any] = {**MYSQL, "sqlite_with_rowid": False}


def upgrade() -> None:
    """Make the tables."""
    _threads()
    _requests()
    op.create_table(
        "askfirst_effects",
        Column("thread_id", ID, primary_key=True),
        Column("tool_call_id", ID, primary_key=True),
        Column("tool_name", ID, nullable=False),
        Column("digest", String(64), nullable=False),
        Column("effect", String(16), nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        **SMALL,
    )


def _threads() -> None:
    op.create_table(
        "askfirst_threads",
        Column("thread_id", ID, primary_key=True),
        Column("parent", ID),
        Column("next_seq", BigInteger, nullable=False),
        Column("fence", BigInteger, nullable=False),
        Column("lease_owner", ID),
        Column("lease_until", BigInteger, nullable=False),
        Column("run_id", ID),
        Column("write_id", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Column("extra", BODY),
        **SMALL,
    )
    op.create_table(
        "askfirst_messages",
        Column("thread_id", ID, primary_key=True),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("run_id", ID, nullable=False),
        Column("role", String(16), nullable=False),
        Column("body", BODY, nullable=False),
        **MYSQL,
    )
    op.create_table(
        "askfirst_runs",
        Column("thread_id", ID, primary_key=True),
        Column("run_id", ID, primary_key=True),
        Column("agent_id", ID, nullable=False),
        Column("status", String(16)),
        Column("iteration", BigInteger, nullable=False),
        Column("usage", BODY, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        **SMALL,
    )


def _requests() -> None:
    op.create_table(
        "askfirst_requests",
        Column("thread_id", ID, primary_key=True),
        Column("question_id", ID, primary_key=True),
        Column("round", Integer, primary_key=True, autoincrement=False),
        Column("run_id", ID),
        Column("kind", String(16), nullable=False),
        Column("payload", BODY, nullable=False),
        Column("digest", String(64)),
        Column("status", String(16), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger),
        Column("answer", BODY),
        Column("reason", BODY),
        Column("answered_by", ID),
        Column("via", ID),
        Column("settled_at", BigInteger),
        Column("write_id", BigInteger),
        **MYSQL,
    )
    is_open = text("status = 'pending'")
    is_due = text("status = 'pending' AND expires_at IS NOT NULL")
    _index("askfirst_requests_open", ["status", "created_at", "thread_id", "question_id"], is_open)
    _index("askfirst_requests_due", ["status", "expires_at"], is_due)


def _index(name: str, columns: list[str], where: Any) -> None:
    op.create_index(name, "askfirst_requests", columns, sqlite_where=where, postgresql_where=where)
