"""The tables of the service: cases, tokens, events, callbacks, keys, audit trail, budgets.

Conventions as in `tables`. A case that an agent's request has become names that request; its outcome is the
request's.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, text

from askfirst.store.tables import BODY, ID, MYSQL, SEALED, metadata

cases = Table(
    "askfirst_cases",
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
    Column(
        "planned", Integer, nullable=False, server_default=text("0")
    ),  # 1: to be told, 2: see `deliveries`
    Column("held_until", BigInteger),
    **MYSQL,
)
_HELD = text("held_until IS NOT NULL")
Index("askfirst_cases_held", cases.c.held_until, sqlite_where=_HELD, postgresql_where=_HELD)
_OPEN = text("is_open = 1")
Index(
    "askfirst_cases_due",
    cases.c.is_open,
    cases.c.expires_at,
    sqlite_where=_OPEN,
    postgresql_where=_OPEN,
)
Index(
    "askfirst_cases_reminders",
    cases.c.is_open,
    cases.c.remind_at,
    sqlite_where=_OPEN,
    postgresql_where=_OPEN,
)
Index("askfirst_cases_request", cases.c.thread_id, cases.c.question_id, cases.c.round, unique=True)
Index("askfirst_cases_idempotency", cases.c.idempotency, unique=True)
Index("askfirst_cases_ended", cases.c.is_open, cases.c.ended_at)
_AWAITS = text("awaits_effect = 1")
Index(
    "askfirst_cases_effects",
    cases.c.awaits_effect,
    cases.c.ended_at,
    sqlite_where=_AWAITS,
    postgresql_where=_AWAITS,
)
_UNTOLD = text("is_open = 1 AND tell_at IS NOT NULL")
Index(
    "askfirst_cases_untold",
    cases.c.is_open,
    cases.c.tell_at,
    sqlite_where=_UNTOLD,
    postgresql_where=_UNTOLD,
)
_UNPLANNED = text("is_open = 1 AND planned = 1")
Index(
    "askfirst_cases_unplanned",
    cases.c.planned,
    cases.c.is_open,
    cases.c.created_at,
    sqlite_where=_UNPLANNED,
    postgresql_where=_UNPLANNED,
)
_WITHDRAWN = text("is_open = 1 AND withdrawn = 1")
Index(
    "askfirst_cases_withdrawn",
    cases.c.withdrawn,
    cases.c.is_open,
    sqlite_where=_WITHDRAWN,
    postgresql_where=_WITHDRAWN,
)

case_tokens = Table(
    "askfirst_case_tokens",
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
    "askfirst_case_events",
    metadata,
    Column("case_id", ID, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("event", String(32), nullable=False),
    Column("data", BODY, nullable=False, info=SEALED),
    Column("at", BigInteger, nullable=False),
    **MYSQL,
)
Index("askfirst_case_events_at", case_events.c.at)

callbacks = Table(
    "askfirst_callbacks",
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
Index("askfirst_callbacks_due", callbacks.c.due_at)
Index("askfirst_callbacks_key", callbacks.c.key_id, callbacks.c.due_at)

polls = Table(
    "askfirst_polls",
    metadata,
    Column("case_id", ID, primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("times", BODY, nullable=False),
    Column("busy", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    **MYSQL,
)
Index("askfirst_polls_busy", polls.c.busy, polls.c.at)

spent = Table(
    "askfirst_spent",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("at", BigInteger, nullable=False),
    **MYSQL,
)

email_codes = Table(
    "askfirst_email_codes",
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


# The tables of API keys and of the audit trail, and the part of the migration that makes them.
#
# Conventions as in `tables`. A key is kept as a hash. An act is written to ``acts``, and moved from there to
# ``audit``, the chain, by whoever links: they hold the lock of the trail's head, which says how long the
# chain is and where it ends. ``about`` is a hash of the subject, by which an index finds its rows.


keys = Table(
    "askfirst_keys",
    metadata,
    Column("key_id", ID, primary_key=True),
    Column("name", BODY, nullable=False),
    Column("key_hash", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("write_id", BigInteger, nullable=False),
    **MYSQL,
)
Index("askfirst_keys_hash", keys.c.key_hash, unique=True)

audit = Table(
    "askfirst_audit",
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
Index("askfirst_audit_about", audit.c.about)

acts = Table(
    "askfirst_acts",
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
    "askfirst_audit_head",
    metadata,
    Column("head_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    **MYSQL,
)


def upgrade_audit_and_keys(op: Any) -> None:
    """Make the tables; ``op`` is Alembic's. What it makes must never change: a later revision alters it."""
    op.create_table(
        "askfirst_keys",
        Column("key_id", ID, primary_key=True),
        Column("name", BODY, nullable=False),
        Column("key_hash", String(64), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("revoked_at", BigInteger),
        Column("write_id", BigInteger, nullable=False),
        **MYSQL,
    )
    op.create_index("askfirst_keys_hash", "askfirst_keys", ["key_hash"], unique=True)
    op.create_table(
        "askfirst_audit",
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
        "askfirst_audit_head",
        Column("head_id", Integer, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, nullable=False),
        Column("hash", String(64), nullable=False),
        **MYSQL,
    )


# The tables of budgets: what each key uses, what was used of each allowance lately, open event streams, and
# notices of cases that could not be told.
#
# Conventions as in `tables`. Names of people and machines are kept as hashes only.


usage = Table(
    "askfirst_usage",
    metadata,
    Column("key_id", ID, primary_key=True),
    Column("open_cases", BigInteger, nullable=False),
    Column("stored_bytes", BigInteger, nullable=False),
    Column("opened", BODY, nullable=False),  # how many cases were opened lately, as in `counts`
    Column("callback_at", BigInteger),  # when a callback of this key is due next, or was
    **MYSQL,
)
Index("askfirst_usage_callbacks", usage.c.callback_at)

counts = Table(
    "askfirst_counts",
    metadata,
    Column("subject", ID, primary_key=True),
    Column("used", BODY, nullable=False),
    Column("at", BigInteger, nullable=False),
    **MYSQL,
)
Index("askfirst_counts_at", counts.c.at)

streams = Table(
    "askfirst_streams",
    metadata,
    Column("stream_id", ID, primary_key=True),
    Column("process", ID, nullable=False),
    Column("key_id", ID, nullable=False),
    Column("address", ID),
    Column("until", BigInteger, nullable=False),
    **MYSQL,
)
Index("askfirst_streams_key", streams.c.key_id, streams.c.until)
Index("askfirst_streams_address", streams.c.address, streams.c.until)
Index("askfirst_streams_process", streams.c.process)
Index("askfirst_streams_until", streams.c.until)

failed_notices = Table(
    "askfirst_failed_notices",
    metadata,
    Column("case_id", ID, primary_key=True),
    Column("tries", Integer, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("error", String(255), nullable=False),
    **MYSQL,
)


# The tables of what people are told: an outbox of messages, and who listens to a messenger's buttons.
#
# A row of ``deliveries`` is one message about a case, in one place. ``state``: due, sending (under a lease until
# ``due_at``), sent, updating (the case has ended), done, again (it is known what came of it); failed when it could
# not be updated, dropped when the case ended before it was sent.


deliveries = Table(
    "askfirst_deliveries",
    metadata,
    Column("delivery_id", ID, primary_key=True),
    Column("case_id", ID, nullable=False),
    Column("name", ID, nullable=False),  # of the delivery: slack
    Column("place", ID, nullable=False),  # with its target: slack:#ops
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("due_at", BigInteger),
    Column("attempts", Integer, nullable=False),
    Column("error", BODY),
    Column("sent", BODY, info=SEALED),  # where the message is, as JSON
    Column("since", BigInteger, nullable=False),
    Column("sent_at", BigInteger),
    Column("write_id", BigInteger, nullable=False),
    **MYSQL,
)
_TO_DO = text("due_at IS NOT NULL")
Index(
    "askfirst_deliveries_due",
    deliveries.c.name,
    deliveries.c.due_at,
    sqlite_where=_TO_DO,
    postgresql_where=_TO_DO,
)
Index("askfirst_deliveries_case", deliveries.c.case_id)
Index("askfirst_deliveries_since", deliveries.c.since)

listeners = Table(
    "askfirst_listeners",
    metadata,
    Column("name", ID, primary_key=True),
    Column("owner", ID, nullable=False),
    Column("until", BigInteger, nullable=False),
    **MYSQL,
)
