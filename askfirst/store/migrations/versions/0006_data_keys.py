"""The keys that values are encrypted with, themselves encrypted."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, String, Text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

revision = "0006"
down_revision = "0005"

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
    """Add the table."""
    op.create_table(
        "askfirst_data_keys",
        Column("key_id", ID, primary_key=True),
        Column("wrapped", BODY, nullable=False),
        Column("master", String(64), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        **MYSQL,
    )
