"""The audit trail: verified against the tables, exported, and its signed heads pushed to another system."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
from pydantic_core import from_json

from askfirst.clock import Clock, SystemClock
from askfirst.digests import canonical_json
from askfirst.errors import ServiceError
from askfirst.loopback import LOOPBACK_HOSTS
from askfirst.protocol import SigningKey
from askfirst.protocol.signatures import sign_text, verify_text
from askfirst.store import audit_chain
from askfirst.store import cases as case_store
from askfirst.store.audit import Act, case_content_sha256, case_result_sha256, content_sha256, result_sha256
from askfirst.store.audit_chain import START, AuditPage, AuditRow, Head, Recorded, link_all
from askfirst.store.case_rows import CaseRow
from askfirst.store.engine import Engine
from askfirst.store.rows import RequestRow, decode_text

# Heads of the hash chain: signed, and pushed to another system, which an attacker with the database cannot write to.


SECONDS = 15.0
"""The time-out of a push."""
PUSH_INTERVAL_SECONDS = 60.0
"""How often a service pushes a head that has moved."""


def head_body(head: Head, now: float, key: SigningKey | None = None) -> dict[str, Any]:
    """A head as JSON: the number of rows, the hash of the last row, and the current time.

    With a key, ``signature`` is a compact JWS over the canonical JSON of the other fields.
    """
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body: dict[str, Any] = {"rows": head.seq, "head": head.hash, "at": at}
    return body if key is None else {**body, "signature": sign_text(canonical_json(body), key)}


def verify_head(body: Mapping[str, Any], jwks: Mapping[str, Any]) -> Head:
    """The head in a signed body; raises `InvalidSignature` if it was altered, or if another key signed it."""
    said = {name: body.get(name) for name in ("rows", "head", "at")}
    verify_text(canonical_json(said), str(body.get("signature", "")), jwks)
    return Head(int(str(said["rows"])), str(said["head"]))


def check_push_url(url: str) -> None:
    """Raise `ServiceError` unless heads can be pushed to a URL: https, or http on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS):
        raise ServiceError("push_heads must be an https:// address, or http:// on this machine")


class HeadPusher:
    """Pushes the chain's head to a URL whenever it has moved. The operator chose the URL, so any host is allowed."""

    def __init__(
        self, engine: Engine, url: str, key: SigningKey | None = None, clock: Clock | None = None
    ) -> None:
        check_push_url(url)
        self._engine = engine
        self._url = url
        self._key = key
        self._clock = clock or SystemClock()
        self._pushed = START
        self._tls: ssl.SSLContext | None = None

    async def push(self) -> Head | None:
        """Link unlinked acts, and push the head if it has moved. Returns the pushed head, or None.

        Raises `ServiceError` if the push fails.
        """
        await link_all(self._engine)
        head = await self._engine.read(audit_chain.head) or START
        if head == self._pushed:
            return None
        body = json.dumps(head_body(head, self._clock.now(), self._key)).encode()
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context)  # it reads files
        try:
            async with httpx2.AsyncClient(verify=self._tls, timeout=SECONDS) as client:
                answer = await client.post(
                    self._url, content=body, headers={"content-type": "application/json"}
                )
        except (httpx2.HTTPError, OSError) as error:
            raise ServiceError(f"the head could not be pushed: {type(error).__name__}") from error
        if not answer.is_success:
            raise ServiceError(
                f"the head could not be pushed: the receiver answered with {answer.status_code}"
            )
        self._pushed = head
        return head


# Comparing the tables with the hashes in the trail.
#
# A row that is older than the hashes in the trail is counted, and not compared.


COMPARE_TRIES = 10
"""How often a row is compared again if it changes meanwhile."""
CLOCK_DIFFERENCE = 60_000
"""The milliseconds by which the clocks of two machines may differ."""
OPENED = "request.opened"
SETTLED = frozenset(
    f"request.{status}" for status in ("answered", "cancelled", "timed_out", "aborted", "superseded")
)
CREATED = "case.created"
ENDED = frozenset(f"case.{act}" for act in ("answered", "cancelled", "expired", "completed"))


class Difference(NamedTuple):
    """A row of a table that differs from the trail; ``seq`` is the number of the trail's row, if it has one."""

    seq: int | None
    problem: str


class Compared(NamedTuple):
    """The result of comparing some rows."""

    differences: list[Difference]
    older: int
    """How many rows are older than the hashes in the trail, so that they cannot be compared."""


class TrailRow(NamedTuple):
    """A decoded row of the trail."""

    seq: int | None
    at: int
    act: str
    subject: str
    detail: dict[str, Any]

    @property
    def place(self) -> str:
        """The name of the row in a sentence."""
        return "an act that is not linked yet" if self.seq is None else f"row {self.seq}"


async def compare(engine: Engine) -> AsyncIterator[Compared]:
    """Compare all requests and all cases with the trail, page by page. Other processes may write meanwhile."""
    began = await engine.read(audit_chain.began)
    after = ""
    while page := await engine.read(partial(audit_chain.threads, after)):
        yield await _compare_requests(engine, page, began)
        after = page[-1]
    after = ""
    while found := await engine.read(partial(audit_chain.case_page, after)):
        yield await _compare_cases(engine, found, began)
        after = found[-1].case_id


async def _compare_requests(engine: Engine, thread_ids: Sequence[str], began: int | None) -> Compared:
    compared = await _compare_threads(engine, thread_ids, began)
    if not compared.differences:
        return compared
    differences: list[Difference] = []
    for thread_id in thread_ids:  # again, one by one: only rows that do not change meanwhile count
        for _ in range(COMPARE_TRIES):
            before = await engine.read(partial(audit_chain.requests_of, [thread_id]))
            found = await _compare_threads(engine, [thread_id], began)
            if before == await engine.read(partial(audit_chain.requests_of, [thread_id])):
                differences += found.differences
                break
    return Compared(differences, compared.older)


async def _compare_threads(engine: Engine, thread_ids: Sequence[str], began: int | None) -> Compared:
    rows: dict[str, list[RequestRow]] = defaultdict(list)
    for row in await engine.read(partial(audit_chain.requests_of, thread_ids)):
        rows[row.thread_id].append(row)
    said = await _trail_rows(engine, thread_ids)
    differences: list[Difference] = []
    older = 0
    for thread_id in thread_ids:
        thread = _ThreadComparison(thread_id, rows[thread_id], said[thread_id], began)
        differences += thread.differences()
        older += thread.older
    return Compared(differences, older)


async def _trail_rows(engine: Engine, subjects: Sequence[str]) -> dict[str, list[TrailRow]]:
    said: dict[str, list[TrailRow]] = defaultdict(list)
    for each in await engine.read(partial(audit_chain.of_subjects, subjects)):
        row = _decoded(each)
        if row is not None:  # otherwise the row's own hash is wrong, which `_Verification` reports
            said[row.subject].append(row)
    return said


def _decoded(row: Recorded) -> TrailRow | None:
    try:
        subject, detail = decode_text(row.subject), from_json(row.detail)
    except ValueError:
        return None
    if not isinstance(subject, str) or not isinstance(detail, dict):
        return None
    return TrailRow(row.seq, row.at, row.act, subject, detail)


class _ThreadComparison:
    """The requests of a thread, compared with the trail's rows about them."""

    def __init__(
        self, thread_id: str, rows: Sequence[RequestRow], said: Sequence[TrailRow], began: int | None
    ) -> None:
        self._thread_id = thread_id
        self._rows = rows
        self._trail_rows = said
        self._began = began
        self.older = 0

    def differences(self) -> Iterator[Difference]:
        asked = {(row.question_id, content_sha256(row._asdict())) for row in self._rows}
        answered = {
            (row.question_id, result_sha256(row._asdict())) for row in self._rows if row.status != "pending"
        }
        named: set[object] = set()
        for each in self._rows_since_deletion():
            question_id = each.detail.get("question_id")
            content, result = each.detail.get("content_sha256"), each.detail.get("result_sha256")
            if content is not None and (question_id, content) not in asked:
                named.add(question_id)
                yield self._difference(each, "its content was changed or removed")
            elif each.act in SETTLED and (question_id, result) not in answered:
                named.add(question_id)
                yield self._difference(each, f"its end, {each.act.partition('.')[2]}, was changed or removed")
        for row in self._rows:
            if row.question_id not in named:
                yield from self._unrecorded(row)

    def _rows_since_deletion(self) -> Iterable[TrailRow]:
        """The trail's rows about the thread's requests, without those of a deleted thread with the same id."""
        about = [each for each in self._trail_rows if each.act == OPENED or each.act in SETTLED]
        deleted = [each for each in self._trail_rows if each.act == "thread.deleted"]
        if not deleted:
            return about
        last = max(each.at for each in deleted) + CLOCK_DIFFERENCE
        place = max(self._trail_rows.index(each) for each in deleted)
        return [each for each in about if each.at > last and self._trail_rows.index(each) > place]

    def _unrecorded(self, row: RequestRow) -> Iterator[Difference]:
        of_it = [each for each in self._trail_rows if each.detail.get("question_id") == row.question_id]
        contents = {each.detail.get("content_sha256") for each in of_it if each.act == OPENED}
        results = {each.detail.get("result_sha256") for each in of_it if each.act in SETTLED}
        is_old = False
        if content_sha256(row._asdict()) not in contents:
            if self._is_recent(row.created_at):
                yield self._difference(None, "the audit trail has no row that it was opened", row.question_id)
            is_old = True
        if row.status != "pending" and result_sha256(row._asdict()) not in results:
            if self._is_recent(row.settled_at or 0):
                problem = f"the audit trail has no row that it was {row.status}"
                yield self._difference(None, problem, row.question_id)
            is_old = True
        self.older += is_old

    def _is_recent(self, at: int) -> bool:
        return self._began is not None and at >= self._began

    def _difference(self, said: TrailRow | None, problem: str, question_id: str = "") -> Difference:
        which = said.detail.get("question_id") if said is not None else question_id
        by = "" if said is None else f", according to {said.place}"
        return Difference(
            None if said is None else said.seq,
            f"request {which} of thread {self._thread_id} was altered: {problem}{by}",
        )


async def _compare_cases(engine: Engine, rows: Sequence[CaseRow], began: int | None) -> Compared:
    said = await _trail_rows(engine, [row.case_id for row in rows])
    differences: list[Difference] = []
    older = 0
    for row in rows:
        found = list(_case_differences(row, said[row.case_id], began))
        for _ in range(COMPARE_TRIES if any(found) else 0):
            before = await engine.read(partial(case_store.get, row.case_id))
            again = await _trail_rows(engine, [row.case_id])
            if before is None:  # the case was purged meanwhile
                found = []
                break
            found = list(_case_differences(before, again[row.case_id], began))
            if before == await engine.read(partial(case_store.get, row.case_id)):
                break
        differences += [each for each in found if each is not None]
        older += None in found
    return Compared(differences, older)


def _case_differences(
    row: CaseRow, said: Sequence[TrailRow], began: int | None
) -> Iterator[Difference | None]:
    """The differences of a case from the trail. None stands for a case that is older than the hashes in the trail."""
    about = f"case {row.case_id} was altered"
    created = [each for each in said if each.act == CREATED and "content_sha256" in each.detail]
    if created and created[-1].detail["content_sha256"] != case_content_sha256(row):
        yield Difference(
            created[-1].seq, f"{about}: its content is not what was asked, according to {created[-1].place}"
        )
    elif not created:
        recent = began is not None and row.created_at >= began
        yield Difference(None, f"{about}: the audit trail has no row that it was opened") if recent else None
    ended = [each for each in said if each.act in ENDED and "result_sha256" in each.detail]
    if row.is_open and ended:
        how = ended[-1].act.partition(".")[2]
        yield Difference(
            ended[-1].seq, f"{about}: it is open, but it was {how} according to {ended[-1].place}"
        )
    elif ended and ended[-1].detail["result_sha256"] != _result_hash(row):
        yield Difference(
            ended[-1].seq, f"{about}: its result is not what was answered, according to {ended[-1].place}"
        )
    elif not row.is_open and not ended:
        recent = began is not None and (row.ended_at or 0) >= began
        yield Difference(None, f"{about}: the audit trail has no row that it ended") if recent else None


def _result_hash(row: CaseRow) -> str | None:
    try:
        return case_result_sha256(row)
    except (
        ValueError,
        TypeError,
        AttributeError,
    ):  # the column was overwritten with a text that is not JSON
        return None


PAGE_ROWS = 500
FAULTS_NAMED = 100
"""How many faults are described; the rest are counted."""
_BEFORE_FIRST = -(2**63)


class Fault(NamedTuple):
    """A fault of the trail, at or just before row ``seq``, or of the row's subject.

    ``seq`` is None if the trail has no row for it, or none that is linked yet.
    """

    seq: int | None
    problem: str
    """One sentence that names the rows."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of verifying the whole trail.

    Keep ``rows`` and ``head`` on another system, for a later comparison.
    """

    rows: int
    head: str
    """The last row's hash."""
    faults: tuple[Fault, ...]
    fault_count: int
    unlinked: int = 0
    """How many acts are written but not linked into the chain yet. Until then the head does not cover them."""
    older: int = 0
    """How many requests and cases are older than the hashes in the trail, so that they were not compared."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was altered, removed or inserted."""
        return self.fault_count == 0


async def verify(engine: Engine, *, kept: Head | None = None) -> Verdict:
    """Read the trail from its beginning, check every link, and compare it with the tables.

    Other processes may write meanwhile. ``kept`` is an earlier head that was kept on another system: the chain has
    to contain it.
    """
    walk = _Verification(kept)
    while True:
        page = await engine.read(partial(audit_chain.page, walk.seq, PAGE_ROWS))
        for row in page.rows:
            walk.step(row, page.after)
        if len(page.rows) < PAGE_ROWS:
            walk.end(page)
            break
    async for act in _unlinked(engine):
        walk.check_unlinked(act)
    async for compared in compare(engine):
        walk.older += compared.older
        for difference in compared.differences:
            walk.fault(*difference)
    return walk.verdict()


async def export(engine: Engine) -> AsyncIterator[str]:
    """The trail's rows, oldest first, each as a line of canonical JSON (without a newline).

    Acts that are not linked yet come last; they have no ``seq``.
    """
    after = _BEFORE_FIRST
    # Unlinked acts are read first: an act that is linked meanwhile is then found in the chain.
    waiting: dict[str | None, Act] = {act.act_id: act async for act in _unlinked(engine)}
    while True:
        page = await engine.read(partial(audit_chain.page, after, PAGE_ROWS))
        for row in page.rows:
            yield canonical_json(_exported(row)).decode()
            after = row.seq
            waiting.pop(row.act_id, None)
        if len(page.rows) < PAGE_ROWS:
            break
    for act in waiting.values():
        shown = _exported(audit_chain.as_if_linked(act))
        for name in ("seq", "previous", "hash"):
            del shown[name]
        yield canonical_json(shown).decode()


async def _unlinked(engine: Engine) -> AsyncIterator[Act]:
    after = ""
    while page := await engine.read(partial(audit_chain.tail, after, PAGE_ROWS)):
        for act in page:
            yield act
        after = page[-1].act_id


def _exported(row: AuditRow) -> dict[str, Any]:
    """A row for export. If a row was tampered with and cannot be decoded, its columns are exported unchanged."""
    try:
        facts = row.facts
    except (TypeError, ValueError):
        facts = row._asdict()
    return {**facts, "hash": row.hash}


class _Verification:
    """Verifies the trail row by row."""

    def __init__(self, kept: Head | None = None) -> None:
        self.seq = _BEFORE_FIRST
        self.older = 0
        self._kept = kept
        self._unlinked = 0
        self._last = START
        self._rows = 0
        self._faults: list[Fault] = []
        self._fault_count = 0

    def step(self, row: AuditRow, after: Head | None) -> None:
        """Verify the next row. ``after`` is a head that was read after the row."""
        self.seq = row.seq
        self._rows += 1
        expected = self._last.seq + 1
        # The type is checked because SQLite stores a text in a column of numbers, if somebody writes one.
        if type(row.seq) is not int or row.seq < expected or (after is not None and row.seq > after.seq):
            self.fault(row.seq, f"row {row.seq} was inserted: the chain does not reach it")
            return
        if not row.fits:
            self.fault(row.seq, f"row {row.seq} was altered: its hash does not fit it")
        elif row.seq > expected:
            self.fault(row.seq, _missing(expected, row.seq - 1))
        elif row.previous != self._last.hash:
            self.fault(row.seq, _broken_link(self._last.seq, row.seq))
        self._last = Head(row.seq, row.hash)
        if self._kept is not None and self._kept.seq == row.seq and self._kept.hash != row.hash:
            self.fault(
                row.seq, f"row {row.seq}, or one before it, was written anew: the head that was kept differs"
            )

    def check_unlinked(self, act: Act) -> None:
        """Verify an act that is not linked into the chain yet."""
        self._unlinked += 1
        if not audit_chain.as_if_linked(act).fits:
            self.fault(None, f"the unlinked act {act.act_id} was altered: its hash does not fit it")

    def end(self, page: AuditPage) -> None:
        """Compare the end of the chain with the head from before the last rows were read."""
        head, last = page.before, self._last
        if self._kept is not None and self._kept.seq > last.seq:
            self.fault(
                self._kept.seq, f"{_missing(last.seq + 1, self._kept.seq)}: the head that was kept had them"
            )
        if head is None:
            if last.seq:
                self.fault(last.seq, "the head of the chain is missing")
        elif last.seq < head.seq:
            self.fault(head.seq, _missing(last.seq + 1, head.seq))
        elif last == head or last.seq > head.seq:  # rows that were appended meanwhile are chained to the head
            return
        else:
            self.fault(last.seq, f"row {last.seq} was altered: the head of the chain has another hash for it")

    def verdict(self) -> Verdict:
        return Verdict(
            self._rows, self._last.hash, tuple(self._faults), self._fault_count, self._unlinked, self.older
        )

    def fault(self, seq: int | None, problem: str) -> None:
        """Add a fault."""
        self._fault_count += 1
        if len(self._faults) < FAULTS_NAMED:
            self._faults.append(Fault(seq, problem))


def _missing(first: int, last: int) -> str:
    return f"row {first} is missing" if first == last else f"rows {first} to {last} are missing"


def _broken_link(before: int, seq: int) -> str:
    if before == 0:
        return f"row {seq} was altered: it is the first, but names a row before it"
    return f"row {before} was altered: row {seq} was chained to another hash"
