"""Whether the tables hold what the audit trail says was asked and answered.

The trail has hashes of it. Something that was written before there were any is counted, and not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic_core import from_json

from assent.store import cases as case_store
from assent.store import chain, record_pages
from assent.store.case_rows import CaseRow
from assent.store.chain import Recorded
from assent.store.engine import Engine
from assent.store.recorded import (
    case_content_sha256,
    case_result_sha256,
    content_sha256,
    result_sha256,
)
from assent.store.rows import RequestRow, decode_text

LOOKS = 10
"""How often something is looked at again that changes while it is compared."""
NEARLY = 60_000
"""Milliseconds by which the clocks of two machines may differ."""
OPENED = "request.opened"
SETTLED = frozenset(
    f"request.{status}" for status in ("answered", "cancelled", "timed_out", "aborted", "superseded")
)
CREATED = "case.created"
ENDED = frozenset(f"case.{act}" for act in ("answered", "cancelled", "expired", "completed"))


class Difference(NamedTuple):
    """Something in a table that is not what the trail says; ``seq`` is the trail's row, if there is one."""

    seq: int | None
    problem: str


class Compared(NamedTuple):
    """What came of comparing some of it."""

    differences: list[Difference]
    older: int
    """How many are from before the trail had hashes of them."""


class Said(NamedTuple):
    """A row of the trail, read."""

    seq: int | None
    at: int
    act: str
    subject: str
    detail: dict[str, Any]

    @property
    def place(self) -> str:
        """How a sentence names it."""
        return "an act that is not linked yet" if self.seq is None else f"row {self.seq}"


async def compare(engine: Engine) -> AsyncIterator[Compared]:
    """Compare all requests and all cases with the trail, some at a time; others may write meanwhile."""
    began = await engine.read(chain.began)
    after = ""
    while page := await engine.read(partial(record_pages.threads, after)):
        yield await _requests(engine, page, began)
        after = page[-1]
    after = ""
    while found := await engine.read(partial(record_pages.case_page, after)):
        yield await _cases(engine, found, began)
        after = found[-1].case_id


async def _requests(engine: Engine, thread_ids: Sequence[str], began: int | None) -> Compared:
    compared = await _threads(engine, thread_ids, began)
    if not compared.differences:
        return compared
    differences: list[Difference] = []
    for thread_id in thread_ids:  # once more, each by itself, and only what stands still counts
        for _ in range(LOOKS):
            before = await engine.read(partial(record_pages.requests_of, [thread_id]))
            found = await _threads(engine, [thread_id], began)
            if before == await engine.read(partial(record_pages.requests_of, [thread_id])):
                differences += found.differences
                break
    return Compared(differences, compared.older)


async def _threads(engine: Engine, thread_ids: Sequence[str], began: int | None) -> Compared:
    rows: dict[str, list[RequestRow]] = defaultdict(list)
    for row in await engine.read(partial(record_pages.requests_of, thread_ids)):
        rows[row.thread_id].append(row)
    said = await _said(engine, thread_ids)
    differences: list[Difference] = []
    older = 0
    for thread_id in thread_ids:
        thread = _Thread(thread_id, rows[thread_id], said[thread_id], began)
        differences += thread.differences()
        older += thread.older
    return Compared(differences, older)


async def _said(engine: Engine, subjects: Sequence[str]) -> dict[str, list[Said]]:
    said: dict[str, list[Said]] = defaultdict(list)
    for each in await engine.read(partial(chain.of_subjects, subjects)):
        row = _read(each)
        if row is not None:  # else it was altered, and is named for that
            said[row.subject].append(row)
    return said


def _read(row: Recorded) -> Said | None:
    try:
        subject, detail = decode_text(row.subject), from_json(row.detail)
    except ValueError:
        return None
    if not isinstance(subject, str) or not isinstance(detail, dict):
        return None
    return Said(row.seq, row.at, row.act, subject, detail)


class _Thread:
    """A thread's requests beside what the trail says of them."""

    def __init__(
        self, thread_id: str, rows: Sequence[RequestRow], said: Sequence[Said], began: int | None
    ) -> None:
        self._thread_id = thread_id
        self._rows = rows
        self._said = said
        self._began = began
        self.older = 0

    def differences(self) -> Iterator[Difference]:
        asked = {(row.question_id, content_sha256(row._asdict())) for row in self._rows}
        answered = {
            (row.question_id, result_sha256(row._asdict())) for row in self._rows if row.status != "pending"
        }
        named: set[object] = set()
        for each in self._since_deleted():
            question_id = each.detail.get("question_id")
            content, result = each.detail.get("content_sha256"), each.detail.get("result_sha256")
            if content is not None and (question_id, content) not in asked:
                named.add(question_id)
                yield self._difference(each, "what it asks is not what was asked")
            elif each.act in SETTLED and (question_id, result) not in answered:
                named.add(question_id)
                yield self._difference(each, f"how it ended, {each.act.partition('.')[2]}, is not there now")
        for row in self._rows:
            if row.question_id not in named:
                yield from self._unrecorded(row)

    def _since_deleted(self) -> Iterable[Said]:
        """What is said of the requests that are there now, and not of a deleted thread of the same name."""
        about = [each for each in self._said if each.act == OPENED or each.act in SETTLED]
        deleted = [each for each in self._said if each.act == "thread.deleted"]
        if not deleted:
            return about
        last = max(each.at for each in deleted) + NEARLY
        place = max(self._said.index(each) for each in deleted)
        return [each for each in about if each.at > last and self._said.index(each) > place]

    def _unrecorded(self, row: RequestRow) -> Iterator[Difference]:
        of_it = [each for each in self._said if each.detail.get("question_id") == row.question_id]
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

    def _difference(self, said: Said | None, problem: str, question_id: str = "") -> Difference:
        which = said.detail.get("question_id") if said is not None else question_id
        by = "" if said is None else f", as {said.place} has it"
        return Difference(
            None if said is None else said.seq,
            f"request {which} of thread {self._thread_id} was altered: {problem}{by}",
        )


async def _cases(engine: Engine, rows: Sequence[CaseRow], began: int | None) -> Compared:
    said = await _said(engine, [row.case_id for row in rows])
    differences: list[Difference] = []
    older = 0
    for row in rows:
        found = list(_case(row, said[row.case_id], began))
        for _ in range(LOOKS if any(found) else 0):
            before = await engine.read(partial(case_store.get, row.case_id))
            again = await _said(engine, [row.case_id])
            if before is None:  # it was purged
                found = []
                break
            found = list(_case(before, again[row.case_id], began))
            if before == await engine.read(partial(case_store.get, row.case_id)):
                break
        differences += [each for each in found if each is not None]
        older += None in found
    return Compared(differences, older)


def _case(row: CaseRow, said: Sequence[Said], began: int | None) -> Iterator[Difference | None]:
    """What is wrong with a case; None if it is older than what could say so."""
    about = f"case {row.case_id} was altered"
    created = [each for each in said if each.act == CREATED and "content_sha256" in each.detail]
    if created and created[-1].detail["content_sha256"] != case_content_sha256(row):
        yield Difference(
            created[-1].seq, f"{about}: what it asks is not what was asked, as {created[-1].place} has it"
        )
    elif not created:
        recent = began is not None and row.created_at >= began
        yield Difference(None, f"{about}: the audit trail has no row that it was opened") if recent else None
    ended = [each for each in said if each.act in ENDED and "result_sha256" in each.detail]
    if row.is_open and ended:
        how = ended[-1].act.partition(".")[2]
        yield Difference(ended[-1].seq, f"{about}: it is open, and {ended[-1].place} has it as {how}")
    elif ended and ended[-1].detail["result_sha256"] != _result(row):
        yield Difference(
            ended[-1].seq, f"{about}: how it ended is not how it did, as {ended[-1].place} has it"
        )
    elif not row.is_open and not ended:
        recent = began is not None and (row.ended_at or 0) >= began
        yield Difference(None, f"{about}: the audit trail has no row that it ended") if recent else None


def _result(row: CaseRow) -> str | None:
    try:
        return case_result_sha256(row)
    except (ValueError, TypeError, AttributeError):  # somebody has written there what is no JSON
        return None
