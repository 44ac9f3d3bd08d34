"""Links that end: when a token opens nothing any more, whether it was revoked, and what it is made of again."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, String

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the columns; the end of a token from before is counted from when its case was opened."""
    op.add_column("askfirst_case_tokens", Column("salt", String(32)))
    op.add_column("askfirst_case_tokens", Column("expires_at", BigInteger))
    op.add_column("askfirst_case_tokens", Column("revoked_at", BigInteger))
