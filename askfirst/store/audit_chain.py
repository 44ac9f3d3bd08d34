"""The hash chain of the audit trail: rows linked in order, read page by page, compared with the tables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic_core import from_json
from sqlalchemy import Integer, delete, exists, insert, literal_column, select, update

from askfirst.concurrency import finish
from askfirst.digests import canonical_json
from askfirst.errors import StoreError
from askfirst.store import case_tables, cases, requests, tables
from askfirst.store.audit import Act, about, digest
from askfirst.store.case_rows import CaseRow
from askfirst.store.case_tables import cases as case_table
from askfirst.store.engine import Engine
from askfirst.store.rows import RequestRow, decode_text, encode_text
from askfirst.store.statement import Statement, Transaction, param

# The chain: the audit trail's rows in order, each bound to the one before it by a hash.
#
# Acts are written without a place in the chain (see `audit`). Any process links them, one at a time under the lock of
# the chain's head, in one transaction, so that a crash links nothing or all.


GENESIS = "0" * 64
"""The ``previous`` hash of the first row."""
LINKED_AT_ONCE = 500
"""How many acts one transaction links at most."""
ABOUT_AT_ONCE = 50
"""How many subjects one statement finds the rows of."""

_A, _W, _H = case_tables.audit.c, case_tables.acts.c, case_tables.audit_head.c
_ONE = literal_column("1", Integer)
_ONLY = _H.head_id == _ONE
OWN = ("act_id", "at", "actor", "act", "subject", "detail")
"""The fields that a row's content hash covers."""


class AuditRow(NamedTuple):
    """A row of the chain, as it is stored. One from before revision 0005 has none of the last three columns."""

    seq: int
    at: int
    actor: str
    act: str
    subject: str
    detail: str
    previous: str
    hash: str
    act_id: str | None = None
    about: str | None = None
    content: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The row as others read it, without its hash; raises `ValueError` if a column is not as it was written."""
        facts: dict[str, Any] = {
            "seq": self.seq,
            "at": self.at,
            "actor": decode_text(self.actor),
            "act": self.act,
            "subject": decode_text(self.subject),
            "detail": from_json(self.detail),
            "previous": self.previous,
        }
        detail = canonical_json(facts["detail"]).decode()
        written = encode_text(facts["actor"]), encode_text(facts["subject"]), detail
        if written != (self.actor, self.subject, self.detail):
            raise ValueError("a column is not as it was written")
        if self.act_id is not None or self.content is not None:
            facts |= {"act_id": self.act_id, "content": self.content}
        return facts

    @property
    def fits(self) -> bool:
        """Whether the stored hashes are those of the row's contents."""
        try:
            facts = self.facts
            if self.act_id is None and self.content is None:
                return digest(facts) == self.hash
            own = {name: facts[name] for name in OWN}
            return (
                self.about == about(facts["subject"])
                and self.content == digest(own)
                and self.hash == link_hash(self.seq, self.previous, self.content)
            )
        except (TypeError, ValueError):
            return False


class Head(NamedTuple):
    """Where the chain ends: the number of its last row, which is how many there are, and that row's hash."""

    seq: int
    hash: str


START = Head(0, GENESIS)
"""The head of an empty chain."""


class AuditPage(NamedTuple):
    """Rows of the chain, and its head just before and just after they were read (None: there is none)."""

    before: Head | None
    rows: list[AuditRow]
    after: Head | None


HEAD = Statement(select(_H.seq, _H.hash).where(_ONLY))
# The lock is not waited for: acts that are left over are linked by the next process.
LOCKED_HEAD = Statement(select(_H.seq, _H.hash).where(_ONLY).with_for_update(skip_locked=True))
FIRST_HEAD = Statement(
    insert(case_tables.audit_head).from_select(
        ["head_id", "seq", "hash"],
        select(_ONE, literal_column("0", Integer), param("hash", _H.hash.type)).where(
            ~exists(select(_ONE).where(_ONLY))
        ),
    )
)
MOVE_HEAD = Statement(
    update(case_tables.audit_head).where(_ONLY).values(seq=param("seq"), hash=param("hash"))
)
ACTS = tuple(_W[name] for name in Act._fields)
COLUMNS = tuple(_A[name] for name in AuditRow._fields)
UNLINKED = Statement(
    select(*ACTS).where(_W.act_id > param("after")).order_by(_W.act_id).limit(param("limit", _A.seq.type))
)
ANY_UNLINKED = Statement(select(_ONE).select_from(case_tables.acts).limit(1))
LINK = Statement(insert(case_tables.audit).values({name: param(name) for name in AuditRow._fields}).inline())
MOVED = Statement(delete(case_tables.acts).where(_W.act_id == param("act_id")))
PAGE = Statement(
    select(*COLUMNS).where(_A.seq > param("after")).order_by(_A.seq).limit(param("limit", _A.seq.type))
)
ROW = Statement(select(*COLUMNS).where(_A.seq == param("seq")))
_SUBJECTS = [param(f"s{n}") for n in range(ABOUT_AT_ONCE)]
ACTS_ABOUT = Statement(select(*ACTS).where(_W.about.in_(_SUBJECTS)).order_by(_W.act_id))
ABOUT = Statement(select(*COLUMNS).where(_A.about.in_(_SUBJECTS)).order_by(_A.seq))
FIRST_AT = Statement(select(_A.at).where(_A.act_id.is_not(None)).order_by(_A.seq).limit(1))
FIRST_ACT_AT = Statement(select(_W.at).order_by(_W.act_id).limit(1))


class Recorded(NamedTuple):
    """A row of the trail, linked or not: ``seq`` and ``hash`` are None for one that is not."""

    seq: int | None
    at: int
    act: str
    subject: str
    detail: str
    hash: str | None = None
    actor: str | None = None


def link(limit: int = LINKED_AT_ONCE) -> Transaction[int]:
    """Link acts into the chain, oldest first; returns how many: none if another process is linking."""
    head = yield LOCKED_HEAD, {}
    if not head:
        if (yield HEAD, {}):
            return 0
        yield FIRST_HEAD, {"hash": GENESIS}  # a race for it ends in a unique violation, and is run again
        head = yield LOCKED_HEAD, {}
        if not head:  # another process has begun the chain just now, and is linking already
            return 0
    rows = list(_linked(Head(*head[0]), (yield from tail("", limit))))
    if rows:
        moved = [row._asdict() for row in rows]
        many = len(rows) > 1
        yield LINK, moved if many else moved[0]
        yield MOVED, moved if many else moved[0]
        yield MOVE_HEAD, moved[-1]
    return len(rows)


def is_unlinked() -> Transaction[bool]:
    """Whether there are acts that are not linked."""
    return bool((yield ANY_UNLINKED, {}))


def tail(after: str, limit: int) -> Transaction[list[Act]]:
    """Acts that are not linked, oldest first; ``after`` is the id of the last one before."""
    return [Act(*row) for row in (yield UNLINKED, {"after": after, "limit": limit})]


def page(after: int, limit: int) -> Transaction[AuditPage]:
    """Rows after a given one, in order."""
    before = yield from head()
    rows = yield PAGE, {"after": after, "limit": limit}
    return AuditPage(before, [AuditRow(*row) for row in rows], (yield from head()))


def head() -> Transaction[Head | None]:
    """Where the chain ends; None if it has no head."""
    rows = yield HEAD, {}
    return Head(*rows[0]) if rows else None


def row_at(seq: int) -> Transaction[AuditRow | None]:
    """One row of the chain."""
    rows = yield ROW, {"seq": seq}
    return AuditRow(*rows[0]) if rows else None


def of_subjects(subjects: Sequence[str]) -> Transaction[list[Recorded]]:
    """What the trail says of up to `ABOUT_AT_ONCE` subjects, linked or not.

    Unlinked acts are read first: one that is linked meanwhile is found twice rather than never.
    """
    hashes = [about(subject) for subject in subjects]
    padded = [*hashes, *[hashes[-1]] * (ABOUT_AT_ONCE - len(hashes))]
    params = {f"s{n}": it for n, it in enumerate(padded)}
    waiting = [Act(*row) for row in (yield ACTS_ABOUT, params)]
    rows = [AuditRow(*row) for row in (yield ABOUT, params)]
    linked = {row.act_id for row in rows}
    return [
        Recorded(row.seq, row.at, row.act, row.subject, row.detail, row.hash, row.actor) for row in rows
    ] + [
        Recorded(None, row.at, row.act, row.subject, row.detail, None, row.actor)
        for row in waiting
        if row.act_id not in linked
    ]


def began() -> Transaction[int | None]:
    """When the first act with a content hash was written (older acts have no row); None if there is none."""
    rows = [*(yield FIRST_ACT_AT, {}), *(yield FIRST_AT, {})]
    return min((at for (at,) in rows), default=None)


def as_if_linked(act: Act, after: Head = START) -> AuditRow:
    """An unlinked act as the row that it will be after this head."""
    seq = after.seq + 1
    return AuditRow(
        seq=seq, previous=after.hash, hash=link_hash(seq, after.hash, act.content), **act._asdict()
    )


def link_hash(seq: int, previous: str, content: str | None) -> str:
    """The hash of a row in its place: over its number, the hash before it and that of its content."""
    return digest({"seq": seq, "previous": previous, "content": content})


def _linked(head: Head, acts: Sequence[Act]) -> Iterator[AuditRow]:
    for act in acts:
        row = as_if_linked(act, head)
        yield row
        head = Head(row.seq, row.hash)


# Linking in the background: soon after the acts, many at once, without delaying them.


logger = logging.getLogger("askfirst.store")
EVERY = 64
"""After so many acts of this process the unlinked ones, of all processes, are linked."""
SECONDS = 1.0
"""Fewer acts than that are linked after so many seconds."""


class Linker:
    """Links acts while a store is open. Acts that are left over are linked by the next process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._acts = 0
        self._due: asyncio.TimerHandle | None = None
        self._linking: asyncio.Future[int] | None = None
        self._failed = False

    def acted(self) -> None:
        """Acts have been written, or are about to be."""
        self._acts += 1
        if self._acts >= EVERY:
            self._link()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(SECONDS, self._link)

    def stop(self) -> None:
        """Link no more."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _link(self) -> None:
        self.stop()
        if self._linking is None:
            self._acts = 0
            self._linking = self._engine.write(link, behind=True)
            self._linking.add_done_callback(self._linked)

    def _linked(self, job: asyncio.Future[int]) -> None:
        self._linking = None
        error = None if job.cancelled() else job.exception()
        if error is not None and not self._failed:
            logger.warning(
                "acts could not be linked into the audit trail, see askfirst audit verify: %s", error
            )
        self._failed = error is not None


async def link_all(engine: Engine) -> int:
    """Link whatever is not linked; returns how many acts that were. Some are left if another links just now."""
    count = 0
    if await engine.read(is_unlinked):
        while linked := await finish(engine.write(link)):
            count += linked
            if linked < LINKED_AT_ONCE:
                break
    return count


async def link_if_possible(engine: Engine) -> None:
    """As `link_all`, without raising: the acts themselves are committed."""
    try:
        await link_all(engine)
    except StoreError as error:
        logger.warning("acts could not be linked into the audit trail, see askfirst audit verify: %s", error)


_T, _Q, _C = tables.threads.c, tables.requests.c, case_table.c
_IDS = [param(f"id{n}") for n in range(ABOUT_AT_ONCE)]
_LIMIT = param("limit", _T.next_seq.type)

THREADS = Statement(
    select(_T.thread_id).where(_T.thread_id > param("after")).order_by(_T.thread_id).limit(_LIMIT)
)
REQUESTS = Statement(
    select(*requests.COLUMNS).where(_Q.thread_id.in_(_IDS)).order_by(_Q.thread_id, _Q.question_id, _Q.round)
)
CASES = Statement(
    select(*cases.COLUMNS).where(_C.case_id > param("after")).order_by(_C.case_id).limit(_LIMIT)
)


def threads(after: str) -> Transaction[list[str]]:
    """A page of threads' ids, in order."""
    return [thread_id for (thread_id,) in (yield THREADS, {"after": after, "limit": ABOUT_AT_ONCE})]


def requests_of(thread_ids: Sequence[str]) -> Transaction[list[RequestRow]]:
    """All requests of up to `ABOUT_AT_ONCE` threads, whatever became of them."""
    padded = [*thread_ids, *[thread_ids[-1]] * (ABOUT_AT_ONCE - len(thread_ids))]
    rows = yield REQUESTS, {f"id{n}": it for n, it in enumerate(padded)}
    return [RequestRow(*row) for row in rows]


def case_page(after: str) -> Transaction[list[CaseRow]]:
    """A page of cases, by id."""
    return [CaseRow(*row) for row in (yield CASES, {"after": after, "limit": ABOUT_AT_ONCE})]
