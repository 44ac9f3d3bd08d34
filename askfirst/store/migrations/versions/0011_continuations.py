"""Continuations: what has to go on because a request was settled, and how."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text, text
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0011"
down_revision = "0010"

_ID = String(255).with_variant(String(255, collation="C"), "postgresql")
_BODY = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    """Add the table, and to requests how their threads go on."""
    op.add_column("askfirst_requests", Column("resumer", _ID))
    op.add_column("askfirst_requests", Column("resumes", _ID))
    op.create_table(
        "askfirst_continuations",
        Column("thread_id", _ID, primary_key=True),
        Column("resumer", _ID, nullable=False),
        Column("state", String(16), nullable=False),
        Column("due_at", BigInteger),
        Column("attempts", Integer, nullable=False),
        Column("error", _BODY),
        Column("owner", _ID),
        Column("settled_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Column("write_id", BigInteger, nullable=False),
        **_OPTIONS,
    )
    due = text("due_at IS NOT NULL")
    op.create_index(
        "askfirst_continuations_due",
        "askfirst_continuations",
        ["due_at", "thread_id"],
        sqlite_where=due,
        postgresql_where=due,
    )
    op.create_index("askfirst_continuations_state", "askfirst_continuations", ["state", "due_at"])
