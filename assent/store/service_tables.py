"""The tables of API keys and of the audit trail, and the part of the migration that makes them.

Conventions as in `tables`. A key is kept as a hash. An act is written to ``acts``, and moved from there to ``audit``,
the chain, by whoever links: they hold the lock of the trail's head, which says how long the chain is and where it
ends. ``about`` is a hash of the subject, by which an index finds its rows.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table

from assent.store.tables import BODY, ID, MYSQL, metadata

keys = Table(
    "assent_keys",
    metadata,
    Column("key_id", ID, primary_key=True),
    Column("name", BODY, nullable=False),
    Column("key_hash", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("write_id", BigInteger, nullable=False),
    **MYSQL,
)
Index("assent_keys_hash", keys.c.key_hash, unique=True)

audit = Table(
    "assent_audit",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", BODY, nullable=False),
    Column("act", String(64), nullable=False),
    Column("subject", BODY, nullable=False),
    Column("detail", BODY, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("act_id", String(32)),  # this and what follows are missing in rows from before revision 0005
    Column("about", String(32)),
    Column("content", String(64)),
    **MYSQL,
)
Index("assent_audit_about", audit.c.about)

acts = Table(
    "assent_acts",
    metadata,
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

audit_head = Table(
    "assent_audit_head",
    metadata,
    Column("head_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    **MYSQL,
)


def upgrade_audit_and_keys(op: Any) -> None:
    """Make the tables; ``op`` is Alembic's. What it makes must never change: a later revision alters it."""
    op.create_table(
        "assent_keys",
        Column("key_id", ID, primary_key=True),
        Column("name", BODY, nullable=False),
        Column("key_hash", String(64), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("revoked_at", BigInteger),
        Column("write_id", BigInteger, nullable=False),
        **MYSQL,
    )
    op.create_index("assent_keys_hash", "assent_keys", ["key_hash"], unique=True)
    op.create_table(
        "assent_audit",
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("at", BigInteger, nullable=False),
        Column("actor", BODY, nullable=False),
        Column("act", String(64), nullable=False),
        Column("subject", BODY, nullable=False),
        Column("detail", BODY, nullable=False),
        Column("previous", String(64), nullable=False),
        Column("hash", String(64), nullable=False),
        **MYSQL,
    )
    op.create_table(
        "assent_audit_head",
        Column("head_id", Integer, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, nullable=False),
        Column("hash", String(64), nullable=False),
        **MYSQL,
    )
