"""The record stands alone: acts that are written without waiting, and linked into the chain behind them."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, String, Text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

revision = "0005"
down_revision = "0004"

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
    """Add the table and the columns. Rows of the trail that are there have none of these: they stay as they are."""
    op.create_table(
        "askfirst_acts",
        Column("act_id", String(32), primary_key=True),
        Column("about", String(32), nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("actor", BODY, nullable=False),
        Column("act", String(64), nullable=False),
        Column("subject", BODY, nullable=False),
        Column("detail", BODY, nullable=False),
        Column("content", String(64), nullable=False),
        **MYSQL,
    )
    op.add_column("askfirst_audit", Column("act_id", String(32)))
    op.add_column("askfirst_audit", Column("about", String(32)))
    op.add_column("askfirst_audit", Column("content", String(64)))
    op.create_index("askfirst_audit_about", "askfirst_audit", ["about"])
    op.add_column("askfirst_effects", Column("granted", String(64)))
