"""Checkpoints on every store: one holder at a time, resolved once, and everyone else is told who."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kit.stores import Database, prompt

from askfirst.checkpointer.base import CheckpointKeeper, CheckpointState, StoredCheckpoint
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import CheckpointNotFound, CheckpointNotPendingError, StoreError
from askfirst.hitl.testing import FakeClock
from askfirst.permissions import GrantStore

pytestmark = pytest.mark.anyio
NOW = 1_700_000_000.0
"""What a `FakeClock` says at first."""
BODY: dict[str, Any] = {"pending": [{"id": "call-1", "text": "nul \0, smile 🙂, quote ' \" \\"}], "n": 1.5}
TTL: dict[str, Any] = {"ttl_seconds": 60}


async def state_of(keeper: CheckpointKeeper, checkpoint_id: str = "c") -> tuple[Any, ...]:
    found = await keeper.get_checkpoint(checkpoint_id, "agent")
    assert found is not None
    return found.state, found.claimed_by, found.claimed_until


@pytest.mark.parametrize("protocol", [CheckpointKeeper, GrantStore])
def test_the_methods_are_those_of_the_protocol(protocol: type) -> None:
    names = [name for name in vars(protocol) if not name.startswith("_")]
    assert names
    for name in names:
        written = inspect.signature(getattr(SqlCheckpointer, name))
        assert written == inspect.signature(getattr(protocol, name)), name


async def test_what_is_saved_is_found(database: Database) -> None:
    async with database.checkpointer(clock=FakeClock()) as keeper:
        await keeper.save_checkpoint("c", "agent", BODY, thread_id="slack 123")
        saved = await keeper.get_checkpoint("c", "agent")
        expected: dict[str, Any] = {"state": "pending", "claimed_by": None, "claimed_until": None}
        assert saved == StoredCheckpoint(
            "c", "agent", "slack 123", BODY, **expected, created_at=NOW, updated_at=NOW
        )
        assert saved == await keeper.get_checkpoint("c", "agent", thread_id="slack 123")
        assert await keeper.get_checkpoint("c", "agent", thread_id="other") is None
        assert await keeper.get_checkpoint("c", "other") is None
        assert await keeper.get_checkpoint("d", "agent") is None


async def test_a_pending_one_that_is_saved_again_gets_the_new_body_and_keeps_its_place(
    database: Database,
) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as keeper:
        await keeper.save_checkpoint("c", "agent", BODY)
        await clock.advance(1)
        await keeper.save_checkpoint("c", "agent", {"new": True})
        (saved,) = await keeper.list_checkpoints("agent")
        assert (saved.body, saved.created_at, saved.updated_at) == ({"new": True}, NOW, NOW + 1)


@pytest.mark.parametrize(("agent_id", "thread_id"), [("other", "t"), ("agent", "other"), ("agent", None)])
async def test_an_id_belongs_to_one_agent_and_thread(
    checkpointer: SqlCheckpointer, agent_id: str, thread_id: str | None
) -> None:
    await checkpointer.save_checkpoint("c", "agent", BODY, thread_id="t")
    with pytest.raises(StoreError, match="checkpoint 'c' already, of another agent or thread"):
        await checkpointer.save_checkpoint("c", agent_id, {}, thread_id=thread_id)
    saved = await checkpointer.get_checkpoint("c", "agent")
    assert saved is not None
    assert saved.body == BODY


async def test_a_claim_from_beginning_to_end(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as keeper:
        await keeper.save_checkpoint("c", "agent", BODY, thread_id="t")
        await clock.advance(1)
        claimed = await keeper.claim_checkpoint("c", "agent", thread_id="t", by="ann", **TTL)
        assert (claimed.state, claimed.claimed_by, claimed.claimed_until) == (
            "resolving",
            "ann",
            NOW + 61,
        )
        assert (claimed.body, claimed.retaken, claimed.updated_at) == (BODY, False, NOW + 1)
        assert await keeper.get_checkpoint("c", "agent") == claimed
        await keeper.release_checkpoint("c", "agent", thread_id="t", by="ann")
        assert await state_of(keeper) == ("pending", None, None)
        again = await keeper.claim_checkpoint("c", "agent", by="bob", **TTL)
        assert (again.claimed_by, again.retaken) == ("bob", False)
        await keeper.resolve_checkpoint("c", "agent", by="bob")
        assert await state_of(keeper) == ("resolved", "bob", None)


Move = Callable[[SqlCheckpointer], Coroutine[Any, Any, Any]]


def moves(by: str, agent_id: str = "agent", thread_id: str | None = None) -> dict[str, Move]:
    """All that a worker may do with a checkpoint it has claimed, or thinks so, and claiming it."""
    this: dict[str, Any] = {"checkpoint_id": "c", "agent_id": agent_id, "thread_id": thread_id, "by": by}
    return {
        "claim": lambda keeper: keeper.claim_checkpoint(**this, **TTL),
        "resolve": lambda keeper: keeper.resolve_checkpoint(**this),
        "release": lambda keeper: keeper.release_checkpoint(**this),
        "renew": lambda keeper: keeper.renew_checkpoint(**this, **TTL),
    }


async def refused(keeper: SqlCheckpointer, work: Coroutine[Any, Any, Any]) -> CheckpointNotPendingError:
    """The refusal of something that has changed nothing."""
    before = await keeper.get_checkpoint("c", "agent")
    with pytest.raises(CheckpointNotPendingError) as failed:
        await work
    assert await keeper.get_checkpoint("c", "agent") == before
    assert failed.value.checkpoint_id == "c"
    return failed.value


async def test_who_is_too_late_is_told_who_holds_it_and_until_when(database: Database) -> None:
    async with database.checkpointer(clock=FakeClock()) as keeper:
        await keeper.save_checkpoint("c", "agent", BODY)
        await keeper.claim_checkpoint("c", "agent", by="ann", **TTL)
        attempts = [move(keeper) for move in moves("bob").values()]
        attempts += [moves("ann")["claim"](keeper)]  # a name is no claim
        attempts += [keeper.save_checkpoint("c", "agent", {}), keeper.delete_checkpoint("c", "agent")]
        for attempt in attempts:
            error = await refused(keeper, attempt)
            facts = (error.state, error.claimed_by, error.claimed_until)
            assert facts == ("resolving", "ann", NOW + 60)
            assert str(error) == (
                "checkpoint 'c' is held by 'ann' until 2023-11-14T22:14:20.000Z; "
                "it can be claimed after that, or once it is released"
            )


async def test_a_resolved_one_stays_so(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as keeper:
        await keeper.save_checkpoint("c", "agent", BODY)
        await keeper.claim_checkpoint("c", "agent", by="ann", **TTL)
        await keeper.resolve_checkpoint("c", "agent", by="ann")
        await clock.advance(1000)
        for attempt in [*moves("ann").values(), *moves("bob").values()]:
            error = await refused(keeper, attempt(keeper))
            assert (error.state, error.claimed_by, error.claimed_until) == ("resolved", "ann", None)
            assert "was resolved by 'ann'" in str(error)
        await refused(keeper, keeper.save_checkpoint("c", "agent", {}))


@pytest.mark.parametrize("move", ["resolve", "release", "renew"])
async def test_what_nobody_claimed_has_no_holder(checkpointer: SqlCheckpointer, move: str) -> None:
    await checkpointer.save_checkpoint("c", "agent", BODY)
    error = await refused(checkpointer, moves("ann")[move](checkpointer))
    assert (error.state, error.claimed_by, error.claimed_until) == ("pending", None, None)
    assert str(error) == "checkpoint 'c' is held by nobody; claim it first"


@pytest.mark.parametrize("move", ["claim", "resolve", "release", "renew"])
async def test_one_of_another_agent_or_thread_is_not_there(checkpointer: SqlCheckpointer, move: str) -> None:
    await checkpointer.save_checkpoint("c", "agent", BODY, thread_id="t")
    await checkpointer.save_checkpoint("on no thread", "agent", BODY)
    if move != "claim":
        await checkpointer.claim_checkpoint("c", "agent", by="ann", **TTL)
    before = await checkpointer.get_checkpoint("c", "agent")
    for agent_id, thread_id in (("other", None), ("other", "t"), ("agent", "other")):
        with pytest.raises(CheckpointNotFound) as failed:
            await moves("ann", agent_id, thread_id)[move](checkpointer)
        facts = (failed.value.checkpoint_id, failed.value.agent_id, failed.value.thread_id)
        assert facts == ("c", agent_id, thread_id)
    assert await checkpointer.get_checkpoint("c", "agent") == before
    with pytest.raises(
        CheckpointNotFound, match="agent 'agent' has no checkpoint 'on no thread' on thread 't'"
    ):
        await checkpointer.claim_checkpoint("on no thread", "agent", thread_id="t", by="ann", **TTL)
    await moves("ann", "agent", "t")[move](checkpointer)


async def test_a_lapsed_claim_is_taken_over_and_its_holder_is_told(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as keeper:
        await keeper.save_checkpoint("c", "agent", BODY)
        await keeper.claim_checkpoint("c", "agent", by="ann", **TTL)
        await clock.advance(59.999)
        await refused(keeper, moves("bob")["claim"](keeper))
        await clock.advance(0.001)
        taken = await keeper.claim_checkpoint("c", "agent", by="bob", **TTL)
        assert (taken.claimed_by, taken.retaken, taken.body) == ("bob", True, BODY)
        for name, move in moves("ann").items():
            error = await refused(keeper, move(keeper))
            assert error.claimed_by == "bob", name
        await keeper.release_checkpoint("c", "agent", by="bob")
        later = await keeper.claim_checkpoint("c", "agent", by="cleo", **TTL)
        assert later.retaken, "what was begun under the lapsed claim is in doubt still"


@pytest.mark.parametrize("move", ["resolve", "release", "renew"])
async def test_a_lapsed_claim_that_nobody_took_over_is_its_holders_still(
    database: Database, move: str
) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as keeper:
        await keeper.save_checkpoint("c", "agent", BODY)
        await keeper.claim_checkpoint("c", "agent", by="ann", **TTL)
        await clock.advance(3600)
        await moves("ann")[move](keeper)
        until = NOW + 3_660
        expected = {"resolve": ("resolved", "ann", None), "release": ("pending", None, None)}
        assert await state_of(keeper) == expected.get(move, ("resolving", "ann", until))


async def test_a_claim_that_is_renewed_does_not_lapse_and_is_never_made_shorter(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as keeper:
        await keeper.save_checkpoint("c", "agent", BODY)
        await keeper.claim_checkpoint("c", "agent", by="ann", **TTL)
        await clock.advance(50)
        await keeper.renew_checkpoint("c", "agent", by="ann", **TTL)
        await clock.advance(50)
        await refused(keeper, moves("bob")["claim"](keeper))
        await keeper.renew_checkpoint("c", "agent", by="ann", ttl_seconds=0.5)
        assert await state_of(keeper) == ("resolving", "ann", NOW + 110)


@pytest.mark.parametrize("held", [False, True])
async def test_delete_removes_what_nobody_holds(database: Database, held: bool) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as keeper:
        await keeper.save_checkpoint("c", "agent", BODY)
        if held:
            await keeper.claim_checkpoint("c", "agent", by="ann", **TTL)
            await refused(keeper, keeper.delete_checkpoint("c", "agent"))
            await clock.advance(60)
        await keeper.delete_checkpoint("c", "other")
        assert await keeper.get_checkpoint("c", "agent") is not None
        await keeper.delete_checkpoint("c", "agent")
        assert await keeper.get_checkpoint("c", "agent") is None
        await keeper.delete_checkpoint("c", "agent")
        with pytest.raises(CheckpointNotFound):
            await keeper.claim_checkpoint("c", "agent", by="ann", **TTL)


async def test_deleting_a_thread_leaves_its_checkpoints(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.commit("t", prompt(release=True), fence=0, acquire=True)
    await checkpointer.save_checkpoint("c", "agent", BODY, thread_id="t")
    await checkpointer.delete("t")
    assert await checkpointer.get_checkpoint("c", "agent", thread_id="t") is not None


# Lists.


async def filled(keeper: SqlCheckpointer, clock: FakeClock) -> list[tuple[str, str | None, CheckpointState]]:
    """Checkpoints of one agent, a few of them of the same moment, among those of another."""
    made: list[tuple[str, str | None, CheckpointState]] = []
    states: tuple[CheckpointState, ...] = ("pending", "resolving", "resolved")
    for number in range(24):
        thread_id = (None, "t", "é")[number // 2 % 3]
        name, state = f"{'b' if number % 2 else 'ä'}{number:02}", states[number % 3]
        await keeper.save_checkpoint(name, "agent", {"n": number}, thread_id=thread_id)
        await keeper.save_checkpoint(f"other {name}", "other", {}, thread_id=thread_id)
        if state != "pending":
            await keeper.claim_checkpoint(name, "agent", by="ann", **TTL)
        if state == "resolved":
            await keeper.resolve_checkpoint(name, "agent", by="ann")
        made.append((name, thread_id, state))
        if number % 4 == 3:
            await clock.advance(1)
    groups = [made[start : start + 4] for start in range(0, 24, 4)]
    return [each for group in groups for each in sorted(group)]


@pytest.mark.parametrize("limit", [1, 5, 100])
async def test_lists_are_paged_oldest_first(database: Database, limit: int) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as keeper:
        made = await filled(keeper, clock)
        for thread_id in (None, "t", "é", "none"):
            for state in (None, "pending", "resolving", "resolved"):
                listed: list[StoredCheckpoint] = []
                page: Any = None
                while page is None or len(page) == limit:
                    after = listed[-1].cursor if listed else None
                    page = await keeper.list_checkpoints(
                        "agent", thread_id=thread_id, state=state, limit=limit, after=after
                    )
                    listed += page
                expected = [it for it in made if thread_id in (None, it[1]) and state in (None, it[2])]
                assert [(it.checkpoint_id, it.thread_id, it.state) for it in listed] == expected
                assert [await keeper.get_checkpoint(it.checkpoint_id, "agent") for it in listed] == listed


# Mistakes.


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\0b", "a ", "\ud800"])
async def test_ids_that_no_database_keeps_are_refused(checkpointer: SqlCheckpointer, bad: str) -> None:
    keeper = checkpointer
    attempts = [
        keeper.save_checkpoint(bad, "agent", {}),
        keeper.save_checkpoint("c", bad, {}),
        keeper.save_checkpoint("c", "agent", {}, thread_id=bad),
        keeper.claim_checkpoint("c", "agent", by=bad, **TTL),
        keeper.resolve_checkpoint("c", "agent", by=bad),
        keeper.get_checkpoint(bad, "agent"),
        keeper.list_checkpoints(bad),
        keeper.list_checkpoints("agent", thread_id=bad),
        keeper.delete_checkpoint(bad, "agent"),
    ]
    for attempt in attempts:
        with pytest.raises(StoreError, match=r"empty|characters|NUL|space|Unicode"):
            await attempt


async def test_the_longest_ids_are_kept(checkpointer: SqlCheckpointer) -> None:
    long = [chr(0x1F600 + n) * 255 for n in range(4)]
    await checkpointer.save_checkpoint(long[0], long[1], BODY, thread_id=long[2])
    await checkpointer.claim_checkpoint(long[0], long[1], thread_id=long[2], by=long[3], **TTL)
    (listed,) = await checkpointer.list_checkpoints(long[1], thread_id=long[2])
    assert (listed.claimed_by, listed.body) == (long[3], BODY)
    assert await checkpointer.list_checkpoints(long[1], after=listed.cursor) == []


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan"), 1e12])
async def test_a_time_that_is_none_is_refused(checkpointer: SqlCheckpointer, ttl: float) -> None:
    await checkpointer.save_checkpoint("c", "agent", BODY)
    with pytest.raises(StoreError, match="ttl_seconds is a number of seconds above 0, up to 100 years"):
        await checkpointer.claim_checkpoint("c", "agent", by="ann", ttl_seconds=ttl)
    assert await state_of(checkpointer) == ("pending", None, None)


@pytest.mark.parametrize("body", [{"n": float("nan")}, {"t": "\ud800"}, {"x": object()}, [1], "text"])
async def test_a_body_that_is_no_json_object_is_refused(checkpointer: SqlCheckpointer, body: Any) -> None:
    with pytest.raises(StoreError, match="body is"):
        await checkpointer.save_checkpoint("c", "agent", body)
    assert await checkpointer.get_checkpoint("c", "agent") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "open"}, "state is pending, resolving or resolved, not 'open'"),
        ({"limit": 0}, "limit is not a whole number from 1 to"),
        ({"after": "c"}, "'c' is not a cursor of a checkpoint"),
        ({"after": "1:"}, "'1:' is not a cursor of a checkpoint"),
        ({"after": "x:c"}, "'x:c' is not a cursor of a checkpoint"),
        ({"after": f"{2**80}:c"}, "not a cursor of a checkpoint"),
    ],
)
async def test_a_list_that_cannot_be_is_refused(
    checkpointer: SqlCheckpointer, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        await checkpointer.list_checkpoints("agent", **options)
