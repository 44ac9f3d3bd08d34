"""The tables, for every database. `migrations` builds them; a test holds the two equal.

Times are milliseconds since 1970 (UTC). ``write_id`` is a random number that each transaction writes into the
row it changes. After an indeterminate commit (the connection broke during COMMIT) the writer looks for its
number there: if it finds it, the transaction was committed.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text, text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

from askfirst.store.rows import ID_LENGTH

VERSION_TABLE = "askfirst_alembic_version"

ID = String(ID_LENGTH).with_variant(String(ID_LENGTH, collation="C"), "postgresql")
"""An id: compared and sorted by its bytes, on every database."""

BODY: TypeEngine[str] = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
"""JSON, as it was encoded."""

SEALED: dict[str, Any] = {"sealed": True}
"""The ``info`` of a column whose values are encrypted where the operator has given a key (see `encryption`).

Such a column is written by parameters of its own name, and never compared or computed with.
"""

metadata = MetaData()
MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}
# WITHOUT ROWID stores rows in the primary key's B-tree. That suits small rows; wide ones would need overflow pages.
_SMALL: dict[str, Any] = {**MYSQL, "sqlite_with_rowid": False}

threads = Table(
    "askfirst_threads",
    metadata,
    Column("thread_id", ID, primary_key=True),
    Column("parent", ID),
    Column("next_seq", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("lease_owner", ID),
    Column("lease_until", BigInteger, nullable=False),
    Column("run_id", ID),
    Column("write_id", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("extra", BODY),
    **_SMALL,
)

messages = Table(
    "askfirst_messages",
    metadata,
    Column("thread_id", ID, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("run_id", ID, nullable=False),
    Column("role", String(16), nullable=False),
    Column("body", BODY, nullable=False, info=SEALED),
    **MYSQL,
)

runs = Table(
    "askfirst_runs",
    metadata,
    Column("thread_id", ID, primary_key=True),
    Column("run_id", ID, primary_key=True),
    Column("agent_id", ID, nullable=False),
    Column("status", String(16)),
    Column("iteration", BigInteger, nullable=False),
    Column("usage", BODY, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    **_SMALL,
)

UNFINISHED = text("ended_at IS NULL")

# ``ended_at`` is the first column because MySQL has no partial indexes. Elsewhere the index is partial: open
# runs only.
Index(
    "askfirst_runs_unfinished",
    runs.c.ended_at,
    runs.c.thread_id,
    runs.c.run_id,
    sqlite_where=UNFINISHED,
    postgresql_where=UNFINISHED,
)

requests = Table(
    "askfirst_requests",
    metadata,
    Column("thread_id", ID, primary_key=True),
    Column("question_id", ID, primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("run_id", ID),
    Column("kind", String(16), nullable=False),
    Column("payload", BODY, nullable=False, info=SEALED),
    Column("digest", String(64)),
    Column("status", String(16), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("answer", BODY, info=SEALED),
    Column("reason", BODY, info=SEALED),
    Column("answered_by", ID),
    Column("via", ID),
    Column("settled_at", BigInteger),
    Column("write_id", BigInteger),
    Column("shown", Integer, nullable=False, server_default=text("0")),  # whether an open case shows it
    Column("nonce", BigInteger),  # random: what the short id that people type is made of
    Column(
        "resumer", ID
    ),  # the resumer that knows how to go on once this is settled, and the thread that it resumes
    Column("resumes", ID),
    **MYSQL,
)

OPEN = text("status = 'pending'")
DUE = text("status = 'pending' AND expires_at IS NOT NULL")
UNSHOWN = text("status = 'pending' AND shown = 0")
OUTLIVED = text("shown = 1 AND settled_at IS NOT NULL")

# ``status`` is the first column because MySQL has no partial indexes. Elsewhere they are partial: pending
# requests only.
Index(
    "askfirst_requests_open",
    requests.c.status,
    requests.c.created_at,
    requests.c.thread_id,
    requests.c.question_id,
    sqlite_where=OPEN,
    postgresql_where=OPEN,
)
Index(
    "askfirst_requests_due",
    requests.c.status,
    requests.c.expires_at,
    sqlite_where=DUE,
    postgresql_where=DUE,
)
# These two hold the service's work queue only, so they stay small however many requests are open.
Index(
    "askfirst_requests_unshown",
    requests.c.shown,
    requests.c.status,
    requests.c.created_at,
    sqlite_where=UNSHOWN,
    postgresql_where=UNSHOWN,
)
Index(
    "askfirst_requests_outlived",
    requests.c.shown,
    requests.c.settled_at,
    sqlite_where=OUTLIVED,
    postgresql_where=OUTLIVED,
)

effects = Table(
    "askfirst_effects",
    metadata,
    Column("thread_id", ID, primary_key=True),
    Column("tool_call_id", ID, primary_key=True),
    Column("tool_name", ID, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("effect", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("granted", String(64)),  # the digest of the grant by which it ran without being asked about
    **_SMALL,
)

continuations = Table(
    "askfirst_continuations",
    metadata,
    Column("thread_id", ID, primary_key=True),
    Column("resumer", ID, nullable=False),
    Column("state", String(16), nullable=False),
    Column(
        "due_at", BigInteger
    ),  # when a worker may take it: now, at the next try, or when its lease has lapsed
    Column("attempts", Integer, nullable=False),
    Column("error", BODY, info=SEALED),
    Column("owner", ID),
    Column("settled_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("write_id", BigInteger, nullable=False),
    **MYSQL,
)
"""What has to go on because a request was settled: one row for each thread, written by the settling transaction."""

UNDONE = text("due_at IS NOT NULL")
Index(
    "askfirst_continuations_due",
    continuations.c.due_at,
    continuations.c.thread_id,
    sqlite_where=UNDONE,
    postgresql_where=UNDONE,
)
# For counts and lists of what has not gone on: what is done stays out of their way.
Index("askfirst_continuations_state", continuations.c.state, continuations.c.due_at)

checkpoints = Table(
    "askfirst_checkpoints",
    metadata,
    Column("checkpoint_id", ID, primary_key=True),
    Column("agent_id", ID, nullable=False),
    Column("thread_id", ID),
    Column("body", BODY, nullable=False, info=SEALED),
    Column("state", String(16), nullable=False),
    Column("claimed_by", ID),
    Column("claimed_until", BigInteger),
    Column("retaken", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("write_id", BigInteger, nullable=False),
    **MYSQL,
)

# The state comes before the time, so that those resolved long ago are not in the way of the others. No index
# has three ids: a server takes up to 2,700 bytes in one.
Index(
    "askfirst_checkpoints_of_agent",
    checkpoints.c.agent_id,
    checkpoints.c.state,
    checkpoints.c.created_at,
    checkpoints.c.checkpoint_id,
)
Index(
    "askfirst_checkpoints_of_thread",
    checkpoints.c.thread_id,
    checkpoints.c.state,
    checkpoints.c.created_at,
    checkpoints.c.checkpoint_id,
)

permissions = Table(
    "askfirst_permissions",
    metadata,
    Column("session", ID, primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("key", BODY, nullable=False),
    Column("body", BODY, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    **_SMALL,
)

Index("askfirst_permissions_due", permissions.c.session, permissions.c.expires_at)

data_keys = Table(
    "askfirst_data_keys",
    metadata,
    Column("key_id", ID, primary_key=True),
    Column("wrapped", BODY, nullable=False),
    Column("master", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    **MYSQL,
)
"""The keys that values are encrypted with, each itself encrypted with a master key that is not in the database."""
