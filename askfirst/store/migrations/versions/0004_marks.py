"""Marks by which the service finds what it has to do, however much is open; how often cases were asked for."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text, text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

revision = "0004"
down_revision = "0003"

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
# Those that are cases already: what happened to them before this revision is found as well.
SHOWN = """
UPDATE askfirst_requests SET shown = 1 WHERE EXISTS (
    SELECT 1 FROM askfirst_cases
    WHERE askfirst_cases.thread_id = askfirst_requests.thread_id
    AND askfirst_cases.question_id = askfirst_requests.question_id
    AND askfirst_cases.round = askfirst_requests.round
    AND askfirst_cases.is_open = 1
)
"""
WITHDRAWN = """
UPDATE askfirst_cases SET withdrawn = 1 WHERE is_open = 1 AND thread_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM askfirst_requests
    WHERE askfirst_requests.thread_id = askfirst_cases.thread_id
    AND askfirst_requests.question_id = askfirst_cases.question_id
    AND askfirst_requests.round = askfirst_cases.round
)
"""


def upgrade() -> None:
    """Add the columns and the table."""
    op.add_column("askfirst_requests", Column("shown", Integer, nullable=False, server_default=text("0")))
    op.add_column("askfirst_cases", Column("tell_at", BigInteger))
    op.add_column("askfirst_cases", Column("withdrawn", Integer, nullable=False, server_default=text("0")))
    op.execute(SHOWN)
    op.execute(WITHDRAWN)
    for table, name, columns, where in (
        ("requests", "unshown", ["shown", "status", "created_at"], "status = 'pending' AND shown = 0"),
        ("requests", "outlived", ["shown", "settled_at"], "shown = 1 AND settled_at IS NOT NULL"),
        ("cases", "untold", ["is_open", "tell_at"], "is_open = 1 AND tell_at IS NOT NULL"),
        ("cases", "withdrawn", ["withdrawn", "is_open"], "is_open = 1 AND withdrawn = 1"),
    ):
        partly: dict[str, Any] = {"sqlite_where": text(where), "postgresql_where": text(where)}
        op.create_index(f"askfirst_{table}_{name}", f"askfirst_{table}", columns, **partly)
    op.create_table(
        "askfirst_polls",
        Column("case_id", ID, primary_key=True),
        Column("kind", String(16), primary_key=True),
        Column("times", BODY, nullable=False),
        Column("busy", Integer, nullable=False),
        Column("at", BigInteger, nullable=False),
        **MYSQL,
    )
    op.create_index("askfirst_polls_busy", "askfirst_polls", ["busy", "at"])
