"""A random number for each request, of which the short id is made that people type."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column."""
    op.add_column("askfirst_requests", Column("nonce", BigInteger))
