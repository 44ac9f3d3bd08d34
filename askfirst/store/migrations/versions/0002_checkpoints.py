"""Checkpoints and permissions."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

revision = "0002"
down_revision = "0001"

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


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "askfirst_checkpoints",
        Column("checkpoint_id", ID, primary_key=True),
        Column("agent_id", ID, nullable=False),
        Column("thread_id", ID),
        Column("body", BODY, nullable=False),
        Column("state", String(16), nullable=False),
        Column("claimed_by", ID),
        Column("claimed_until", BigInteger),
        Column("retaken", Integer, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Column("write_id", BigInteger, nullable=False),
        **MYSQL,
    )
    of_agent = ["agent_id", "state", "created_at", "checkpoint_id"]
    of_thread = ["thread_id", "state", "created_at", "checkpoint_id"]
    op.create_index("askfirst_checkpoints_of_agent", "askfirst_checkpoints", of_agent)
    op.create_index("askfirst_checkpoints_of_thread", "askfirst_checkpoints", of_thread)
    op.create_table(
        "askfirst_permissions",
        Column("session", ID, primary_key=True),
        Column("digest", String(64), primary_key=True),
        Column("key", BODY, nullable=False),
        Column("body", BODY, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger),
        sqlite_with_rowid=False,
        **MYSQL,
    )
    op.create_index("askfirst_permissions_due", "askfirst_permissions", ["session", "expires_at"])
