"""Holds: when a decision that was made on a page goes out."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, text

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the column, and the index by which any process finds what is due."""
    op.add_column("askfirst_cases", Column("held_until", BigInteger))
    held = text("held_until IS NOT NULL")
    op.create_index(
        "askfirst_cases_held", "askfirst_cases", ["held_until"], sqlite_where=held, postgresql_where=held
    )
