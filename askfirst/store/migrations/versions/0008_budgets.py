"""Budgets: what keys use, what was used lately, open streams, notices that failed; callbacks over days."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text, text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

revision = "0008"
down_revision = "0007"

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
# What is there already counts, from the first moment on.
SIZES = "UPDATE askfirst_cases SET size = length(body) + length(facts) + COALESCE(length(draft), 0)"
SINCE = "UPDATE askfirst_callbacks SET since = due_at WHERE due_at IS NOT NULL"
USAGE = """
INSERT INTO askfirst_usage (key_id, open_cases, stored_bytes, opened, callback_at)
SELECT key_id, SUM(is_open), SUM(size), '[]',
    (SELECT MIN(due_at) FROM askfirst_callbacks WHERE askfirst_callbacks.key_id = askfirst_cases.key_id)
FROM askfirst_cases WHERE key_id IS NOT NULL GROUP BY key_id
"""


def upgrade() -> None:
    """Add the columns and the tables."""
    op.add_column("askfirst_cases", Column("size", BigInteger, nullable=False, server_default=text("0")))
    op.add_column("askfirst_callbacks", Column("since", BigInteger))
    op.create_index("askfirst_callbacks_key", "askfirst_callbacks", ["key_id", "due_at"])
    op.create_table(
        "askfirst_usage",
        Column("key_id", ID, primary_key=True),
        Column("open_cases", BigInteger, nullable=False),
        Column("stored_bytes", BigInteger, nullable=False),
        Column("opened", BODY, nullable=False),
        Column("callback_at", BigInteger),
        **MYSQL,
    )
    op.create_index("askfirst_usage_callbacks", "askfirst_usage", ["callback_at"])
    op.create_table(
        "askfirst_counts",
        Column("subject", ID, primary_key=True),
        Column("used", BODY, nullable=False),
        Column("at", BigInteger, nullable=False),
        **MYSQL,
    )
    op.create_index("askfirst_counts_at", "askfirst_counts", ["at"])
    op.create_table(
        "askfirst_streams",
        Column("stream_id", ID, primary_key=True),
        Column("process", ID, nullable=False),
        Column("key_id", ID, nullable=False),
        Column("address", ID),
        Column("until", BigInteger, nullable=False),
        **MYSQL,
    )
    op.create_index("askfirst_streams_key", "askfirst_streams", ["key_id", "until"])
    op.create_index("askfirst_streams_address", "askfirst_streams", ["address", "until"])
    op.create_index("askfirst_streams_process", "askfirst_streams", ["process"])
    op.create_index("askfirst_streams_until", "askfirst_streams", ["until"])
    op.create_table(
        "askfirst_failed_notices",
        Column("case_id", ID, primary_key=True),
        Column("tries", Integer, nullable=False),
        Column("since", BigInteger, nullable=False),
        Column("error", String(255), nullable=False),
        **MYSQL,
    )
    op.execute(SIZES)
    op.execute(SINCE)
    op.execute(USAGE)
