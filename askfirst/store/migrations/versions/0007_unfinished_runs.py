"""An index of the runs that have not ended: what nobody has resumed is found among these."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0007"
down_revision = "0006"

UNFINISHED = text("ended_at IS NULL")


def upgrade() -> None:
    """Add the index. MySQL has no partial ones; there the runs that have ended are in it too."""
    op.create_index(
        "askfirst_runs_unfinished",
        "askfirst_runs",
        ["ended_at", "thread_id", "run_id"],
        sqlite_where=UNFINISHED,
        postgresql_where=UNFINISHED,
    )
