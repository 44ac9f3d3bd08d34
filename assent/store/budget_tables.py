"""The tables of budgets: what each key uses, what was used of each allowance lately, open event streams, and
notices of cases that could not be told.

Conventions as in `tables`. Names of people and machines are kept as hashes only.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table

from assent.store.tables import BODY, ID, MYSQL, metadata

usage = Table(
    "assent_usage",
    metadata,
    Column("key_id", ID, primary_key=True),
    Column("open_cases", BigInteger, nullable=False),
    Column("stored_bytes", BigInteger, nullable=False),
    Column("opened", BODY, nullable=False),  # how many cases were opened lately, as in `counts`
    Column("callback_at", BigInteger),  # when a callback of this key is due next, or was
    **MYSQL,
)
Index("assent_usage_callbacks", usage.c.callback_at)

counts = Table(
    "assent_counts",
    metadata,
    Column("subject", ID, primary_key=True),
    Column("used", BODY, nullable=False),
    Column("at", BigInteger, nullable=False),
    **MYSQL,
)
Index("assent_counts_at", counts.c.at)

streams = Table(
    "assent_streams",
    metadata,
    Column("stream_id", ID, primary_key=True),
    Column("process", ID, nullable=False),
    Column("key_id", ID, nullable=False),
    Column("address", ID),
    Column("until", BigInteger, nullable=False),
    **MYSQL,
)
Index("assent_streams_key", streams.c.key_id, streams.c.until)
Index("assent_streams_address", streams.c.address, streams.c.until)
Index("assent_streams_process", streams.c.process)
Index("assent_streams_until", streams.c.until)

failed_notices = Table(
    "assent_failed_notices",
    metadata,
    Column("case_id", ID, primary_key=True),
    Column("tries", Integer, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("error", String(255), nullable=False),
    **MYSQL,
)
