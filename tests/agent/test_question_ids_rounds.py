"""One thing asked about twice, and differently: an answer to the one is never taken for the other's.

A call that is to be approved keeps its id, and has rounds; any other question gets an id of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from kit.patience import PATIENCE
from kit.stores import Database, approval, asked, said

from askfirst import Agent, tool
from askfirst.agent.context import Asking
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlDetached, HitlInvalidAnswer, HitlNoPendingRequest, HitlStaleAnswer, StoreError
from askfirst.hitl import CheckpointedChannel
from askfirst.hitl.testing import FakeClock
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.requests import (
    ApproveRequest,
    AskRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Question,
    StoredRequest,
)
from askfirst.store.requests import OPENED

pytestmark = pytest.mark.anyio
APPROVE = {"decision": "approve"}


class Kind(NamedTuple):
    """A verb that asks about some cents, the id of what it asks first, and an answer."""

    question_id: str
    put: Callable[..., Awaitable[Any]]
    answer: Any

    @property
    def anew(self) -> str:
        """The id of what is asked in place of that."""
        return "c1" if self.question_id == "c1" else f"{self.question_id}~2"


KINDS = {
    "approve": Kind("c1", lambda it, cents, **how: it.approve("pay", "c1", {"cents": cents}, **how), APPROVE),
    "confirm": Kind("c1:confirm:1", lambda it, cents, **how: it.confirm(f"Pay {cents}?", **how), True),
    "ask": Kind(
        "c1:ask:1",
        lambda it, cents, **how: it.ask([Question(key="a", prompt=f"Pay {cents} to whom?")], **how),
        {"a": "Ann"},
    ),
    "escalate": Kind("c1:escalate:1", lambda it, cents, **how: it.escalate(f"{cents} lost", **how), "retry"),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


class Rounds:
    """Two processes, as it were, that ask about one call on one thread: the old round's and the new one's."""

    def __init__(self, here: SqlCheckpointer, there: SqlCheckpointer, clock: FakeClock) -> None:
        self.here, self.there, self.clock = here, there, clock
        self.old = CheckpointedChannel(checkpointer=here, thread_id="t", clock=clock)
        self.new = CheckpointedChannel(checkpointer=there, thread_id="t", clock=clock)

    async def ask(self, kind: Kind, **how: Any) -> tuple[asyncio.Task[Any], asyncio.Task[Any]]:
        """Ask about a million, and then, elsewhere, about one cent."""
        old = await self.put(self.old, kind, 1_000_000, **how)
        return old, await self.put(self.new, kind, 1)

    async def put(
        self, channel: CheckpointedChannel, kind: Kind, cents: int, **how: Any
    ) -> asyncio.Task[Any]:
        """Begin to ask, and wait until people are told."""
        told = channel.subscribe()
        with Asking("gate", "c1", "pay"):
            task = asyncio.create_task(kind.put(channel, cents, **how))  # pyright: ignore[reportArgumentType]
        await anext(told)
        return task

    async def settle(self, question_id: str, answer: Any) -> StoredRequest:
        """A person answers what is open, as a surface that shows it would have them do."""
        open_now = await self.there.request("t", question_id)
        assert open_now is not None
        payload = open_now.request.payload
        digest = payload.digest if isinstance(payload, ApproveRequest) else None
        return await self.there.settle("t", question_id, answer, by="ann", digest=digest)

    async def is_open(self, question_id: str) -> bool:
        """Whether a round waits for its answer."""
        found = await self.there.request("t", question_id)
        return found is not None and found.status == "pending"


@pytest.fixture
async def rounds(database: Database) -> AsyncIterator[Rounds]:
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(database.checkpointer(clock=clock))
        there = await stack.enter_async_context(database.checkpointer(clock=clock))
        async with asyncio.timeout(PATIENCE):
            yield Rounds(here, there, clock)


async def outcome(task: asyncio.Task[Any]) -> Any:
    """What a task returned or raised."""
    await asyncio.wait({task})
    return task.exception() or task.result()


# Whose answer it is.


async def test_the_new_rounds_answer_is_not_the_old_ones(rounds: Rounds, kind: Kind) -> None:
    old, new = await rounds.ask(kind)
    settled = await rounds.settle(kind.anew, kind.answer)
    assert isinstance(await outcome(old), HitlDetached)
    answer = await outcome(new)
    assert answer == settled.answer or answer.answered_by == "ann"


async def test_the_old_asker_hears_from_another_process_too_that_something_else_is_asked(
    rounds: Rounds, kind: Kind
) -> None:
    old, new = await rounds.ask(kind)
    assert isinstance(await outcome(old), HitlDetached)
    assert await rounds.is_open(kind.anew)
    await rounds.settle(kind.anew, kind.answer)
    assert not isinstance(await outcome(new), BaseException)


async def test_who_asks_the_same_elsewhere_shares_the_answer(rounds: Rounds, kind: Kind) -> None:
    tasks = [await rounds.put(channel, kind, 1) for channel in (rounds.old, rounds.new)]
    await rounds.settle(kind.question_id, kind.answer)
    first, second = [await outcome(task) for task in tasks]
    assert first == second
    assert not isinstance(first, BaseException)


async def test_an_answer_to_the_old_round_does_not_settle_the_new_one(rounds: Rounds, kind: Kind) -> None:
    old, new = await rounds.ask(kind)
    with pytest.raises(HitlStaleAnswer) as stale:
        await rounds.old.answer(kind.question_id, kind.answer)
    assert stale.value.status == "superseded"
    assert isinstance(await outcome(old), HitlDetached)
    assert await rounds.is_open(kind.anew)
    pending = rounds.new.pending
    assert pending is not None
    await rounds.new.answer(kind.anew, kind.answer, by="ann", digest=pending.digest)
    assert not isinstance(await outcome(new), BaseException)


async def test_cancelling_the_old_round_leaves_the_new_one_open(rounds: Rounds, kind: Kind) -> None:
    old, new = await rounds.ask(kind)
    with pytest.raises(HitlStaleAnswer):
        await rounds.old.cancel(kind.question_id)
    assert isinstance(await outcome(old), HitlDetached)
    assert await rounds.is_open(kind.anew)
    await rounds.settle(kind.anew, kind.answer)
    assert not isinstance(await outcome(new), BaseException)


async def test_an_answer_to_the_old_round_comes_too_late_after_its_asker_has_heard(
    rounds: Rounds, kind: Kind
) -> None:
    """Nobody waits through the old channel any more, and what it showed is still not what is asked now."""
    old, new = await rounds.ask(kind)
    assert isinstance(await outcome(old), HitlDetached)
    for act in (rounds.old.answer(kind.question_id, kind.answer), rounds.old.cancel(kind.question_id)):
        with pytest.raises(HitlStaleAnswer) as stale:
            await act
        assert stale.value.status == "superseded"
    assert await rounds.is_open(kind.anew)
    await rounds.settle(kind.anew, kind.answer)
    assert not isinstance(await outcome(new), BaseException)


async def test_the_old_askers_signal_ends_its_own_wait_alone(rounds: Rounds, kind: Kind) -> None:
    signal = asyncio.Event()
    old, new = await rounds.ask(kind, signal=signal)
    signal.set()
    assert isinstance(await outcome(old), HitlDetached)
    assert await rounds.is_open(kind.anew)
    await rounds.settle(kind.anew, kind.answer)
    assert not isinstance(await outcome(new), BaseException)


async def test_the_old_deadline_ends_the_old_wait_alone(rounds: Rounds, kind: Kind) -> None:
    old, new = await rounds.ask(kind, timeout=5)
    await rounds.clock.advance(5)
    assert isinstance(await outcome(old), HitlDetached)
    assert await rounds.is_open(kind.anew)
    await rounds.settle(kind.anew, kind.answer)
    assert not isinstance(await outcome(new), BaseException)


async def test_a_thread_made_anew_answers_nobody_who_asked_on_the_old_one(rounds: Rounds, kind: Kind) -> None:
    old = await rounds.put(rounds.old, kind, 1_000_000)
    await rounds.there.delete("t")
    new = await rounds.put(rounds.new, kind, 1)
    await rounds.settle(kind.question_id, kind.answer)
    # Some stores tell of the deletion before anything is asked anew.
    assert isinstance(await outcome(old), HitlDetached | HitlNoPendingRequest)
    assert not isinstance(await outcome(new), BaseException)


async def test_agents_on_a_thread_made_anew_run_what_was_approved(rounds: Rounds) -> None:
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    async def run(channel: CheckpointedChannel, cents: int) -> asyncio.Task[Any]:
        model = ScriptedModel([ToolCall("c1", "pay", {"cents": cents}), "Done."])
        told = channel.subscribe()
        task = asyncio.create_task(Agent(model=model, tools=[pay], channel=channel).prompt("Pay"))
        await anext(told)
        return task

    old = await run(rounds.old, 1_000_000)
    await rounds.there.delete("t")
    new = await run(rounds.new, 1)
    (shown,) = await rounds.here.pending()
    assert isinstance(shown.request.payload, ApproveRequest)
    # Where the old one waits, so that it is the first to hear.
    await rounds.here.settle("t", "c1", APPROVE, digest=shown.request.payload.digest)
    assert (await outcome(new)).status == "completed"
    await outcome(old)
    assert paid == [1]


class Explained(Question):
    """A question of the asker's own kind."""

    why: str = "because"


@pytest.mark.parametrize(
    ("question_id", "put", "answer"),
    [
        ("c1:confirm:1", lambda it: it.confirm("Sure?", details={"ratio": math.nan}), True),
        ("c1:ask:1", lambda it: it.ask([Explained(key="a", prompt="?")]), {"a": "Ann"}),
    ],
)
async def test_what_a_store_gives_back_a_little_different_is_the_same_question(
    rounds: Rounds, question_id: str, put: Callable[..., Awaitable[Any]], answer: Any
) -> None:
    kind = Kind(question_id, lambda it, _cents: put(it), answer)
    asker = await rounds.put(rounds.old, kind, 1)
    await rounds.settle(question_id, answer)
    assert await outcome(asker) == answer
    asker = await rounds.put(rounds.new, Kind(question_id, lambda it, _cents: put(it), answer), 1)
    pending = rounds.new.pending
    assert pending is not None
    await rounds.new.answer(question_id, answer, digest=pending.digest)
    assert await outcome(asker) == answer


# The store.


@pytest.mark.parametrize("in_step", [True, False])
async def test_a_new_round_wakes_who_waits_for_the_old_one(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch, in_step: bool
) -> None:
    fence, (first,) = await asked(checkpointer)
    woken: list[tuple[str, str]] = []
    monkeypatch.setattr(checkpointer.engine.hub, "wake", woken.extend)
    payload = first.payload.model_copy(update={"args": {"n": 2}, "digest": "e" * 64})
    again = first.model_copy(update={"payload": payload})
    if in_step:
        await checkpointer.commit("t", said(opened=[again], release=True), fence=fence, acquire=True)
    else:
        await checkpointer.save_pending_request("t", again)
    assert [each for each in woken if each != OPENED] == [("t", "call-1")]


HALF = "\ud800"
"""Half of a surrogate pair: a Python string, but no text that can be written."""


@pytest.mark.parametrize(
    ("payload", "bad", "good"),
    [
        (approval().payload, {"decision": "deny", "reason": HALF}, {"decision": "deny", "reason": "no"}),
        (AskRequest(questions=[Question(key="a", prompt="?")]), {"a": HALF}, {"a": "x"}),
        (EscalateRequest(prompt="?", choices=["skip"]), {"action": "skip", "reason": HALF}, "skip"),
    ],
)
async def test_text_that_cannot_be_written_does_not_fit(
    checkpointer: SqlCheckpointer, payload: HitlPayload, bad: Any, good: Any
) -> None:
    await asked(checkpointer, "t", HitlRequest(question_id="q", payload=payload, created_at=1.0))
    with pytest.raises(HitlInvalidAnswer, match="not valid Unicode"):
        await checkpointer.settle("t", "q", bad)
    with pytest.raises(StoreError, match="'q' is not valid Unicode"):
        await checkpointer.cancel("t", "q", HALF)
    assert (await checkpointer.settle("t", "q", good)).status == "answered"


# At once.


async def test_whoever_asked_before_hears_at_once_that_it_was_asked_anew(rounds: Rounds, kind: Kind) -> None:
    rounds.new._checkpointer = rounds.new._keeper = rounds.there = rounds.here  # one process
    old, new = await rounds.ask(kind)
    assert isinstance(await outcome(old), HitlDetached)
    assert await rounds.is_open(kind.anew)
    await rounds.settle(kind.anew, kind.answer)
    await new
