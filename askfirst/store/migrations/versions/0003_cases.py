"""Cases, their tokens, events, callbacks and e-mail codes; the audit trail and the API keys."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text, text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

from askfirst.store.case_tables import upgrade_audit_and_keys

revision = "0003"
down_revision = "0002"

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
    """Make the tables."""
    op.create_table(
        "askfirst_cases",
        Column("case_id", ID, primary_key=True),
        Column("key_id", ID),
        Column("thread_id", ID),
        Column("question_id", ID),
        Column("round", Integer),
        Column("type", String(64), nullable=False),
        Column("status", String(16), nullable=False),
        Column("is_open", Integer, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("body", BODY, nullable=False),
        Column("facts", BODY, nullable=False),
        Column("draft", BODY),
        Column("created_at", BigInteger, nullable=False),
        Column("opened_at", BigInteger),
        Column("ended_at", BigInteger),
        Column("expires_at", BigInteger, nullable=False),
        Column("remind_at", BigInteger),
        Column("reminder_sent_at", BigInteger),
        Column("idempotency", String(64)),
        Column("fingerprint", String(64)),
        Column("awaits_effect", Integer, nullable=False),
        Column("write_id", BigInteger, nullable=False),
        **MYSQL,
    )
    is_open: dict[str, Any] = {"sqlite_where": text("is_open = 1"), "postgresql_where": text("is_open = 1")}
    op.create_index("askfirst_cases_due", "askfirst_cases", ["is_open", "expires_at"], **is_open)
    op.create_index("askfirst_cases_reminders", "askfirst_cases", ["is_open", "remind_at"], **is_open)
    of_request = ["thread_id", "question_id", "round"]
    op.create_index("askfirst_cases_request", "askfirst_cases", of_request, unique=True)
    op.create_index("askfirst_cases_idempotency", "askfirst_cases", ["idempotency"], unique=True)
    op.create_index("askfirst_cases_ended", "askfirst_cases", ["is_open", "ended_at"])
    waits = text("awaits_effect = 1")
    awaits: dict[str, Any] = {"sqlite_where": waits, "postgresql_where": waits}
    op.create_index("askfirst_cases_effects", "askfirst_cases", ["awaits_effect", "ended_at"], **awaits)
    op.create_table(
        "askfirst_case_tokens",
        Column("case_id", ID, primary_key=True),
        Column("token_hash", String(64), primary_key=True),
        Column("scope", String(16), nullable=False),
        **MYSQL,
    )
    op.create_table(
        "askfirst_case_events",
        Column("case_id", ID, primary_key=True),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("event", String(32), nullable=False),
        Column("data", BODY, nullable=False),
        Column("at", BigInteger, nullable=False),
        **MYSQL,
    )
    op.create_index("askfirst_case_events_at", "askfirst_case_events", ["at"])
    op.create_table(
        "askfirst_callbacks",
        Column("callback_id", ID, primary_key=True),
        Column("case_id", ID, nullable=False),
        Column("key_id", ID),
        Column("url", BODY, nullable=False),
        Column("body", BODY, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("due_at", BigInteger),
        Column("outcome", String(16)),
        Column("write_id", BigInteger, nullable=False),
        **MYSQL,
    )
    op.create_index("askfirst_callbacks_due", "askfirst_callbacks", ["due_at"])
    op.create_table(
        "askfirst_spent",
        Column("digest", String(64), primary_key=True),
        Column("at", BigInteger, nullable=False),
        **MYSQL,
    )
    op.create_table(
        "askfirst_email_codes",
        Column("case_id", ID, primary_key=True),
        Column("code_hash", String(64), primary_key=True),
        Column("salt", String(32), nullable=False),
        Column("place", Integer, nullable=False),
        Column("tries", Integer, nullable=False),
        Column("sent_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
        Column("used_at", BigInteger),
        **MYSQL,
    )
    upgrade_audit_and_keys(op)
