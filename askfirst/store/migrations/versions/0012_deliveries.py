"""Deliveries: what people are told of cases, stored before it is sent; who listens to a messenger's buttons."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text, text
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0012"
down_revision = "0011"

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
    """Add the tables, and to cases whether people are to be told; those of agents that are open are to be told."""
    op.add_column("askfirst_cases", Column("planned", Integer, nullable=False, server_default=text("0")))
    op.execute("UPDATE askfirst_cases SET planned = 1 WHERE is_open = 1 AND thread_id IS NOT NULL")
    unplanned = text("is_open = 1 AND planned = 1")
    op.create_index(
        "askfirst_cases_unplanned",
        "askfirst_cases",
        ["planned", "is_open", "created_at"],
        sqlite_where=unplanned,
        postgresql_where=unplanned,
    )
    op.create_table(
        "askfirst_deliveries",
        Column("delivery_id", _ID, primary_key=True),
        Column("case_id", _ID, nullable=False),
        Column("name", _ID, nullable=False),
        Column("place", _ID, nullable=False),
        Column("kind", String(16), nullable=False),
        Column("state", String(16), nullable=False),
        Column("due_at", BigInteger),
        Column("attempts", Integer, nullable=False),
        Column("error", _BODY),
        Column("sent", _BODY),
        Column("since", BigInteger, nullable=False),
        Column("sent_at", BigInteger),
        Column("write_id", BigInteger, nullable=False),
        **_OPTIONS,
    )
    due = text("due_at IS NOT NULL")
    op.create_index(
        "askfirst_deliveries_due",
        "askfirst_deliveries",
        ["name", "due_at"],
        sqlite_where=due,
        postgresql_where=due,
    )
    op.create_index("askfirst_deliveries_case", "askfirst_deliveries", ["case_id"])
    op.create_index("askfirst_deliveries_since", "askfirst_deliveries", ["since"])
    op.create_table(
        "askfirst_listeners",
        Column("name", _ID, primary_key=True),
        Column("owner", _ID, nullable=False),
        Column("until", BigInteger, nullable=False),
        **_OPTIONS,
    )
