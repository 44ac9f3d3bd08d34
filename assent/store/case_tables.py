"""The tables of the service: cases, their tokens, events and e-mail codes, how often they were asked for, and
callbacks still to be made.

Conventions as in `tables`. A case that an agent's request has become names that request; its outcome is the
request's.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, text

from assent.store.tables import BODY, ID, MYSQL, SEALED, metadata

cases = Table(
    "assent_cases",
    metadata,
    Column("case_id", ID, primary_key=True),
    Column("key_id", ID),
    Column("thread_id", ID),
    Column("question_id", ID),
    Column("round", Integer),
    Column("type", String(64), nullable=False),
    Column("status", String(16), nullable=False),
    Column("is_open", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("body", BODY, nullable=False, info=SEALED),
    Column("facts", BODY, nullable=False, info=SEALED),
    Column("draft", BODY, info=SEALED),
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
    Column("tell_at", BigInteger),
    Column(
        "withdrawn", Integer, nullable=False, server_default=text("0")
    ),  # its request went with its thread
    Column("size", BigInteger, nullable=False, server_default=text("0")),  # bytes, as its key's usage has it
    **MYSQL,
)
_OPEN = text("is_open = 1")
Index(
    "assent_cases_due",
    cases.c.is_open,
    cases.c.expires_at,
    sqlite_where=_OPEN,
    postgresql_where=_OPEN,
)
Index(
    "assent_cases_reminders",
    cases.c.is_open,
    cases.c.remind_at,
    sqlite_where=_OPEN,
    postgresql_where=_OPEN,
)
Index("assent_cases_request", cases.c.thread_id, cases.c.question_id, cases.c.round, unique=True)
Index("assent_cases_idempotency", cases.c.idempotency, unique=True)
Index("assent_cases_ended", cases.c.is_open, cases.c.ended_at)
_AWAITS = text("awaits_effect = 1")
Index(
    "assent_cases_effects",
    cases.c.awaits_effect,
    cases.c.ended_at,
    sqlite_where=_AWAITS,
    postgresql_where=_AWAITS,
)
_UNTOLD = text("is_open = 1 AND tell_at IS NOT NULL")
Index(
    "assent_cases_untold",
    cases.c.is_open,
    cases.c.tell_at,
    sqlite_where=_UNTOLD,
    postgresql_where=_UNTOLD,
)
_WITHDRAWN = text("is_open = 1 AND withdrawn = 1")
Index(
    "assent_cases_withdrawn",
    cases.c.withdrawn,
    cases.c.is_open,
    sqlite_where=_WITHDRAWN,
    postgresql_where=_WITHDRAWN,
)

case_tokens = Table(
    "assent_case_tokens",
    metadata,
    Column("case_id", ID, primary_key=True),
    Column("token_hash", String(64), primary_key=True),
    Column("scope", String(16), nullable=False),
    Column("salt", String(32)),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
    **MYSQL,
)

case_events = Table(
    "assent_case_events",
    metadata,
    Column("case_id", ID, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("event", String(32), nullable=False),
    Column("data", BODY, nullable=False, info=SEALED),
    Column("at", BigInteger, nullable=False),
    **MYSQL,
)
Index("assent_case_events_at", case_events.c.at)

callbacks = Table(
    "assent_callbacks",
    metadata,
    Column("callback_id", ID, primary_key=True),
    Column("case_id", ID, nullable=False),
    Column("key_id", ID),
    Column("url", BODY, nullable=False),
    Column("body", BODY, nullable=False, info=SEALED),
    Column("attempts", Integer, nullable=False),
    Column("due_at", BigInteger),
    Column("outcome", String(16)),
    Column("write_id", BigInteger, nullable=False),
    Column("since", BigInteger),  # when it was due first
    **MYSQL,
)
Index("assent_callbacks_due", callbacks.c.due_at)
Index("assent_callbacks_key", callbacks.c.key_id, callbacks.c.due_at)

polls = Table(
    "assent_polls",
    metadata,
    Column("case_id", ID, primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("times", BODY, nullable=False),
    Column("busy", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    **MYSQL,
)
Index("assent_polls_busy", polls.c.busy, polls.c.at)

spent = Table(
    "assent_spent",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("at", BigInteger, nullable=False),
    **MYSQL,
)

email_codes = Table(
    "assent_email_codes",
    metadata,
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
