"""Comparing what tools really did and people really answered with what the store has on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import select

from askfirst.agent.thread import is_finished
from askfirst.checkpointer.base import StoredThread
from askfirst.checkpointer.encoding import stored_request
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlStaleAnswer
from askfirst.messages import AssistantMessage, ToolCall, ToolResultMessage, call_digest
from askfirst.requests import (
    ApproveAnswer,
    ApproveRequest,
    EscalateAnswer,
    StoredRequest,
    plain_answer,
)
from askfirst.store import tables
from askfirst.store.requests import COLUMNS
from askfirst.store.rows import RequestRow
from askfirst.store.statement import Statement, Transaction, param
from kit.lives_agents import faults

_Q, _E = tables.requests.c, tables.effects.c
_ASKED = Statement(
    select(*COLUMNS).where(_Q.thread_id == param("thread_id")).order_by(_Q.question_id, _Q.round)
)
_BEGUN = Statement(select(_E.tool_call_id, _E.attempt, _E.ended_at).where(_E.thread_id == param("thread_id")))
_OPEN_END = ("unknown", "not run again", "may be tried again")
"""The words with which a result says that the outcome of a begun body is unknown."""


class Deed(NamedTuple):
    """A body that ran."""

    thread_id: str
    call_id: str
    attempt: int
    tool_name: str
    amount: int
    key: str


class Said(NamedTuple):
    """A person's answer, under a unique name; ``counts`` is None if the person does not know whether it counts."""

    by: str
    answer: Any
    counts: bool | None


@dataclass
class Truth:
    """What really happened, recorded outside of the store."""

    deeds: list[Deed] = field(default_factory=list[Deed])
    said: list[Said] = field(default_factory=list[Said])
    effects: dict[str, str] = field(default_factory=dict[str, str])
    """By tool name: once, idempotent or none."""
    free: frozenset[str] = frozenset()
    """The tools that need no approval."""
    in_order: bool = True
    """Whether results have to be in the order of their calls."""


async def lies(store: SqlCheckpointer, truth: Truth) -> list[str]:
    """The faults of a store's threads at rest, each as a sentence."""
    found: list[str] = []
    answered: dict[str, StoredRequest] = {}
    threads = await store.threads()
    for listed in threads:
        record = await _record(store, listed.thread_id)
        found += [f"{listed.thread_id}: {lie}" for lie in _lies(record, truth)]
        answered |= {it.answered_by: it for it in record.requests if it.answered_by is not None}
    found += _misheard(truth.said, answered)
    known = {it.thread_id for it in threads}
    lost = [it for it in truth.deeds if it.thread_id not in known and truth.effects[it.tool_name] != "none"]
    return found + [f"{it} was on a thread that is not there" for it in lost]


@dataclass
class _Record:
    thread: StoredThread
    requests: list[StoredRequest]
    begun: dict[str, int]
    open_effects: list[str]
    calls: dict[str, ToolCall]
    results: dict[str, ToolResultMessage]


async def _record(store: SqlCheckpointer, thread_id: str) -> _Record:
    def all_rows() -> Transaction[tuple[Any, Any]]:
        asked = yield _ASKED, {"thread_id": thread_id}
        return asked, (yield _BEGUN, {"thread_id": thread_id})

    asked, begun = await store.engine.read(all_rows)
    thread = await store.load(thread_id)
    assert thread is not None
    said = [it for it in thread.messages if isinstance(it, AssistantMessage)]
    return _Record(
        thread,
        [stored_request(RequestRow(*row)) for row in asked],
        {call_id: attempt for call_id, attempt, _ in begun},
        [call_id for call_id, _, ended in begun if ended is None],
        {call.id: call for it in said for call in it.tool_calls},
        {it.tool_call_id: it for it in thread.messages if isinstance(it, ToolResultMessage)},
    )


def _lies(record: _Record, truth: Truth) -> Iterator[str]:
    thread = record.thread
    yield from faults(thread.messages)
    if truth.in_order:
        yield from _disorder(record)
    if not is_finished(thread.messages):
        yield f"it is not finished: {thread.messages[-1]}"
    if thread.is_leased or thread.lease_owner is not None:
        yield f"it is leased to {thread.lease_owner}"
    if thread.run is None or thread.run.status is None:
        yield f"its run has not come to rest: {thread.run}"
    yield from (f"{call_id} was begun and not ended" for call_id in record.open_effects)
    yield from (f"{it.question_id} is open still" for it in record.requests if it.status == "pending")
    deeds = [it for it in truth.deeds if it.thread_id == thread.thread_id]
    yield from _repeated(deeds, truth)
    for deed in deeds:
        yield from (f"{deed}: {why}" for why in _unjustified(deed, record, truth))
    for result in record.results.values():
        if result.tool_name in truth.effects:
            mine = [it for it in deeds if it.call_id == result.tool_call_id]
            yield from (f"{result}: {why}" for why in _untrue(result, mine, record, truth))


def _disorder(record: _Record) -> Iterator[str]:
    if list(record.calls) != list(record.results):
        yield f"the calls {list(record.calls)} have their results in the order {list(record.results)}"


def _repeated(deeds: Sequence[Deed], truth: Truth) -> Iterator[str]:
    ran = Counter((it.call_id, it.attempt) for it in deeds if truth.effects[it.tool_name] != "none")
    yield from (f"the body of {which} ran {times} times" for which, times in ran.items() if times > 1)
    keys: dict[str, set[str]] = {}
    for deed in deeds:
        keys.setdefault(deed.call_id, set()).add(deed.key)
    yield from (f"{call_id} ran under the keys {those}" for call_id, those in keys.items() if len(those) > 1)


def _unjustified(deed: Deed, record: _Record, truth: Truth) -> Iterator[str]:
    """Why a body should not have run."""
    effect = truth.effects[deed.tool_name]
    if deed.call_id not in record.calls:
        if effect != "none":
            yield "its call is not in the transcript"
        return
    if effect != "none" and record.begun.get(deed.call_id, 0) < deed.attempt:
        yield f"the ledger knows of attempt {record.begun.get(deed.call_id)}"
    retries = list(_retries(deed.call_id, record))
    if effect == "once" and any(n not in dict(retries) for n in range(1, deed.attempt)):
        yield f"nobody said to run it again: {retries}"
    may_run = set(_approved(deed.call_id, record))
    if deed.tool_name in truth.free:
        may_run |= {record.calls[deed.call_id].args["amount"]}
        may_run |= {params["amount"] for _, params in retries if params is not None}
    if deed.amount not in may_run:
        yield f"what may run is {may_run}"


def _retries(call_id: str, record: _Record) -> Iterator[tuple[int, Any]]:
    """The attempts of a call that a person had repeated, each with the changed arguments, if any."""
    for it in record.requests:
        about = it.request.payload.call
        answer = it.answer
        if about is not None and about.tool_call_id == call_id and isinstance(answer, EscalateAnswer):
            details = getattr(it.request.payload, "details", None) or {}
            if answer.action == "retry":
                yield details["attempt"], answer.modified_params


def _approved(call_id: str, record: _Record) -> Iterator[int]:
    """The amounts that people have approved for a call."""
    for it in record.requests:
        asked, answer = it.request.payload, it.answer
        if it.question_id != call_id or not isinstance(asked, ApproveRequest):
            continue
        if isinstance(answer, ApproveAnswer) and answer.decision != "deny":
            yield (answer.edited_args or asked.args)["amount"]


def _untrue(result: ToolResultMessage, deeds: Sequence[Deed], record: _Record, truth: Truth) -> Iterator[str]:
    """The statements of a result that are not true."""
    call_id, text = result.tool_call_id, result.text
    hitl = (result.details or {}).get("hitl", {})
    done = [it for it in deeds if text.endswith(told(it.tool_name, it.amount, it.attempt))]
    counting = [it for it in deeds if truth.effects[it.tool_name] != "none"]
    if not done and result.is_error is False:
        yield "no body did that"
    if not done and counting and not any(words in text for words in _OPEN_END):
        yield f"it does not say that it may have taken effect: {counting}"
    if (
        "digest" in hitl
        and done
        and hitl["digest"] != call_digest(result.tool_name, {"amount": done[0].amount})
    ):
        yield "its digest is not that of what ran"
    if done and result.tool_name not in truth.free and "digest" not in hitl:
        yield "no approval is on its record"
    yield from _undecided(call_id, hitl, record)


_DECISIONS = {"human_approve": "approve", "human_deny": "deny", "human_edit": "edit"}


def _undecided(call_id: str, hitl: dict[str, Any], record: _Record) -> Iterator[str]:
    """The recorded decisions of a result that no person made."""
    decision = hitl.get("decision")
    about = [it for it in record.requests if it.question_id.split(":")[0] == call_id]
    if decision in _DECISIONS:
        made = [it for it in about if isinstance(it.answer, ApproveAnswer)]
        if not any(
            isinstance(it.answer, ApproveAnswer)
            and it.answer.decision == _DECISIONS[decision]
            and it.answered_by == hitl.get("answered_by")
            for it in made
        ):
            yield f"nobody decided that: {made}"
    elif decision in ("human_retry", "human_skip"):
        chosen = [it for it in about if isinstance(it.answer, EscalateAnswer)]
        if not any(it.answered_by == hitl.get("answered_by") for it in chosen):
            yield f"nobody chose that: {chosen}"
    elif decision in ("timed_out", "cancelled") and not any(it.status == decision for it in about):
        yield f"nothing ended like that: {about}"


def _misheard(said: Sequence[Said], answered: dict[str, StoredRequest]) -> Iterator[str]:
    """Answers that were accepted but are not on record, or were refused but are on record."""
    for it in said:
        known = answered.get(it.by)
        if it.counts and (known is None or known.status != "answered"):
            yield f"{it} is not on record: {known}"
        if it.counts is False and known is not None:
            yield f"{it} was refused, and is on record: {known}"
        if known is not None and known.answer is not None and not _is_answer(it.answer, known):
            yield f"{it} is on record as {known}"


def _is_answer(said: Any, known: StoredRequest) -> bool:
    plain: Any = plain_answer(known.answer)  # type: ignore[arg-type]
    if isinstance(plain, dict) and "action" in plain and isinstance(said, str):
        return plain["action"] == said
    return plain == said


def told(tool_name: str, amount: int, attempt: int) -> str:
    """The text that a body returns."""
    return f"{tool_name} did {amount} at attempt {attempt}"


def heard(error: BaseException | None) -> bool | None:
    """Whether an answer counts, judged by the error that its giver got; None if that cannot be known."""
    if error is None:
        return True
    return False if isinstance(error, HitlStaleAnswer) else None
