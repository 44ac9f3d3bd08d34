"""`RunCheckpointStore` and `resume_checkpoint`, on every store: saved, claimed by one, resolved once."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from kit.deeds import (
    TWO,
    Deeds,
    account_spec,
    approve,
    call,
    completed,
    delegate,
    deny,
    edit,
    go_on,
    hitl,
    mailer,
    paused_at,
    pending_ids,
    script,
)
from kit.paths import DATA
from kit.transcripts import assert_sound

from askfirst import Agent, AgentResult, AgentSpec, RunCheckpoint, run_agent, run_agent_resume
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpoints import (
    CheckpointNotFound,
    CheckpointNotPendingError,
    RunCheckpointStore,
    resume_checkpoint,
)
from askfirst.errors import HitlStaleAnswer, InvalidCheckpoint, StoreError
from askfirst.ids import child_thread_id

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}


@pytest.fixture
def store(checkpointer: SqlCheckpointer) -> RunCheckpointStore:
    return RunCheckpointStore(checkpointer)


async def saved(store: RunCheckpointStore, paused: AgentResult, label: str | None = None) -> str:
    assert paused.checkpoint is not None
    return await store.save(paused.checkpoint.spec_id, paused.checkpoint, thread_id=label)


async def state(store: RunCheckpointStore, agent_id: str, checkpoint_id: str) -> str:
    found = await store.get(agent_id, checkpoint_id)
    assert found is not None
    return found.state


# States and claims.


async def test_the_seed_saves_and_claims(checkpointer: SqlCheckpointer) -> None:
    deleted: list[str] = []
    spec = account_spec(deleted)
    paused = await run_agent(spec, "Delete account 12345")
    assert paused.checkpoint is not None
    store = RunCheckpointStore(checkpointer, claim_ttl_seconds=86_400)
    checkpoint_id = await store.save("support", paused.checkpoint, thread_id="slack-thread-123")
    claimed = await store.claim("support", checkpoint_id, thread_id="slack-thread-123")
    assert claimed.state == "resolving"
    assert claimed.claimed_until is not None
    assert claimed.claimed_until - claimed.created_at >= 86_400
    await store.resolve("support", checkpoint_id, thread_id="slack-thread-123")
    assert await state(store, "support", checkpoint_id) == "resolved"


async def test_from_pending_to_resolved(store: RunCheckpointStore) -> None:
    checkpoint_id = await saved(store, await run_agent(mailer(Deeds()), "go"), "label")
    found = await store.get("mailer", checkpoint_id, thread_id="label")
    assert found is not None
    assert (found.state, found.claimed_by, found.claimed_until) == ("pending", None, None)
    assert (found.checkpoint_id, found.agent_id, found.thread_id) == (checkpoint_id, "mailer", "label")
    assert [each.id for each in found.pending] == ["c1", "c2"]
    claimed = await store.claim("mailer", checkpoint_id)
    assert (claimed.state, claimed.retaken) == ("resolving", False)
    assert claimed.claimed_by
    with pytest.raises(CheckpointNotPendingError) as raised:
        await store.claim("mailer", checkpoint_id)
    assert (raised.value.state, raised.value.claimed_by) == ("resolving", claimed.claimed_by)
    assert raised.value.claimed_until == claimed.claimed_until
    assert claimed.claimed_by in str(raised.value)
    assert "until 20" in str(raised.value)
    await store.release("mailer", checkpoint_id)
    assert await state(store, "mailer", checkpoint_id) == "pending"
    await store.claim("mailer", checkpoint_id)
    await store.resolve("mailer", checkpoint_id)
    for attempt in (store.claim, store.release, store.resolve, store.renew):
        with pytest.raises(CheckpointNotPendingError):
            await attempt("mailer", checkpoint_id)
    assert await state(store, "mailer", checkpoint_id) == "resolved"


async def test_another_store_object_does_not_hold_the_claim(store: RunCheckpointStore) -> None:
    checkpoint_id = await saved(store, await run_agent(mailer(Deeds()), "go"))
    await store.claim("mailer", checkpoint_id)
    other = RunCheckpointStore(store.memory)
    for attempt in (other.claim, other.release, other.resolve, other.renew):
        with pytest.raises(CheckpointNotPendingError):
            await attempt("mailer", checkpoint_id)
    await store.renew("mailer", checkpoint_id)
    await store.resolve("mailer", checkpoint_id)


async def test_what_is_not_there(store: RunCheckpointStore) -> None:
    checkpoint_id = await saved(store, await run_agent(mailer(Deeds()), "go"), "label")
    for agent_id, asked, label in (
        ("mailer", "other", None),
        ("other", checkpoint_id, None),
        ("mailer", checkpoint_id, "other"),
    ):
        assert await store.get(agent_id, asked, thread_id=label) is None
        with pytest.raises(CheckpointNotFound):
            await store.claim(agent_id, asked, thread_id=label)
    assert await state(store, "mailer", checkpoint_id) == "pending"


async def test_lists_by_state_and_label_page_by_page(store: RunCheckpointStore) -> None:
    spec = mailer(Deeds())
    ids = [await saved(store, await run_agent(spec, "go"), f"label {n % 2}") for n in range(5)]
    await store.claim("mailer", ids[0])
    await store.claim("mailer", ids[1])
    await store.resolve("mailer", ids[1])
    listed = await store.list("mailer")
    assert {each.checkpoint_id for each in listed} == set(ids)
    assert all(each.checkpoint is None for each in listed)
    assert [len(each.pending) for each in listed] == [2] * 5

    async def ids_of(**filters: Any) -> set[str]:
        return {each.checkpoint_id for each in await store.list("mailer", **filters)}

    assert await ids_of(state="pending") == set(ids[2:])
    assert await ids_of(state="resolving") == {ids[0]}
    assert await ids_of(state="resolved") == {ids[1]}
    assert await ids_of(thread_id="label 0", state="pending") == {ids[2], ids[4]}
    assert await store.list("other") == []
    pages: list[str] = []
    after = None
    while page := await store.list("mailer", limit=2, after=after):
        pages += [each.checkpoint_id for each in page]
        after = page[-1].cursor
    assert pages == [each.checkpoint_id for each in listed]


async def test_saving_again_changes_nothing(store: RunCheckpointStore) -> None:
    paused = await run_agent(mailer(Deeds()), "go")
    checkpoint = paused_at(paused, "c1", "c2")
    checkpoint_id = await saved(store, paused)
    assert await saved(store, paused) == checkpoint_id
    assert len(await store.list("mailer")) == 1
    await store.claim("mailer", checkpoint_id)
    with pytest.raises(CheckpointNotPendingError):
        await saved(store, paused)
    with pytest.raises(StoreError):
        await store.save("other", checkpoint)


def test_only_a_checkpointer_of_ours_keeps_checkpoints() -> None:
    with pytest.raises(InvalidCheckpoint, match="keeps no checkpoints"):
        RunCheckpointStore(object())  # type: ignore[arg-type]


# What is kept.


def tree(deeds: Deeds) -> AgentSpec:
    def mails(messages: Any) -> Any:
        return [call("c1", "mail", messages[0].text), call("c2", "mail", f"{messages[0].text}!")]

    child = AgentSpec("worker", script(mails, "worked"), tools=[deeds.asks("mail")])
    turn = [delegate("a", "worker", "one"), delegate("b", "worker", "two")]
    return AgentSpec("boss", script(turn, "done"), subagents=[child])


async def test_what_comes_back_is_what_was_saved(store: RunCheckpointStore) -> None:
    deeds = Deeds()
    spec = tree(deeds)
    paused = await go_on(spec, await run_agent(spec, "go", principal="maria"), deny("a/c2", reason="no"))
    checkpoint = paused_at(paused, "a/c1", "b/c1", "b/c2")
    checkpoint_id = await saved(store, paused)
    found = await store.get("boss", checkpoint_id)
    assert found is not None
    assert found.checkpoint == checkpoint.model_copy(update={"stored": True})


async def test_a_run_without_a_store_lives_in_the_store_from_then_on(store: RunCheckpointStore) -> None:
    """Its pending calls are requests there, an answer given in part is kept, and a no stays a no."""
    deeds = Deeds()
    paused = await run_agent(tree(deeds), "go", thread_id="t")
    paused = await go_on(tree(deeds), paused, [*deny("a/c2", reason="no"), *approve("b/c1")])
    checkpoint_id = await saved(store, paused, "label")
    a, b = child_thread_id("t", "a"), child_thread_id("t", "b")
    listed = {(each.thread_id, each.question_id) for each in await store.memory.pending()}
    assert listed == {(a, "c1"), (b, "c2")}
    parents = {each.thread_id: each.parent_thread_id for each in await store.memory.threads()}
    assert parents == {"t": None, a: "t", b: "t"}
    with pytest.raises(HitlStaleAnswer):
        await store.memory.settle(a, "c2", APPROVE)
    await store.memory.settle(a, "c1", APPROVE, by="ann")  # from anywhere
    result = await resume_checkpoint(tree(deeds), checkpoint_id, approve("b/c2"), store=store)
    assert completed(result) == {"a": "worked", "b": "worked"}
    assert sorted(deeds.done) == ["mail one", "mail two", "mail two!"]
    for thread_id in ("t", a, b):
        thread = await store.memory.load(thread_id)
        assert thread is not None
        assert_sound(thread.messages)


async def test_version_1_can_be_kept_and_resumed(store: RunCheckpointStore) -> None:
    deleted: list[str] = []
    checkpoint = RunCheckpoint.from_json((DATA / "checkpoint_v1.json").read_bytes())
    checkpoint_id = await store.save("support", checkpoint)
    result = await resume_checkpoint(
        account_spec(deleted), checkpoint_id, approve("call_delete"), store=store
    )
    assert result.status == "completed"
    assert deleted == ["12345"]


async def test_a_run_of_another_store_is_refused(store: RunCheckpointStore) -> None:
    async with MemoryCheckpointer() as elsewhere:
        paused = await Agent.from_spec(mailer(Deeds()), checkpointer=elsewhere).prompt("go")
    with pytest.raises(InvalidCheckpoint, match="kept in another store"):
        await saved(store, paused)
    assert await store.list("mailer") == []


async def test_a_thread_that_holds_another_conversation_is_left_alone(store: RunCheckpointStore) -> None:
    await Agent.from_spec(mailer(Deeds()), checkpointer=store.memory, thread_id="t").prompt("before")
    paused = await run_agent(mailer(Deeds()), "go", thread_id="t")
    with pytest.raises(InvalidCheckpoint, match="another conversation"):
        await saved(store, paused)


async def test_a_thousand_checkpoints_of_one_thread_store_each_message_once(
    store: RunCheckpointStore,
) -> None:
    """Twenty turns, each of which pauses; fifty checkpoints are saved at every pause."""
    marker = "a text that is stored once"
    turns: list[Any] = []
    for n in range(20):
        turns += [[call(f"c{n}", "mail", f"{marker} {n}.")], f"{marker}, said at the end of turn {n}"]
    agent = Agent.from_spec(mailer(Deeds(), *turns), checkpointer=store.memory, thread_id="t")
    for n in range(20):
        paused = await agent.prompt(f"{marker}, asked in turn {n}")
        assert paused.checkpoint is not None
        for m in range(50):
            copy = paused.checkpoint.model_copy(update={"checkpoint_id": f"{n:02}-{m:02}"})
            await store.save("mailer", copy)
        await agent.resume_with(approve(f"c{n}"))
    threads = await store.memory.threads()
    assert [(each.thread_id, each.messages) for each in threads] == [("t", 80)]
    bodies = [
        json.dumps((await store.memory.get_checkpoint(f"{n:02}-{m:02}", "mailer")).body)  # type: ignore[union-attr]
        for n, m in itertools.product(range(20), (0, 49))
    ]
    assert len(await store.list("mailer", limit=2000)) == 1000
    assert max(map(len, bodies)) < 1.2 * min(map(len, bodies))  # it does not grow with the thread
    assert all(body.count(marker) == 1 for body in bodies)  # what is pending is shown; nothing else is
    whole = await store.get("mailer", "19-49")
    assert whole is not None
    assert whole.checkpoint is not None
    assert len(whole.checkpoint.root_messages) == 78


# Resuming.


async def test_resuming_claims_resolves_and_saves_what_is_left(store: RunCheckpointStore) -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    first = await saved(store, await run_agent(spec, "go"), "label")
    paused = await resume_checkpoint(
        spec, first, approve("c2"), store=store, thread_id="label", by="ann", via="web"
    )
    assert pending_ids(paused) == ["c1"]
    assert deeds.done == []
    assert paused.checkpoint is not None
    second = paused.checkpoint.checkpoint_id
    assert second is not None
    assert second != first
    assert await state(store, "mailer", first) == "resolved"
    found = await store.get("mailer", second, thread_id="label")
    assert found is not None
    assert found.state == "pending"
    done = await resume_checkpoint(spec, second, deny("c1"), store=store)
    assert deeds.done == ["mail b"]
    assert (hitl(done, "c2")["answered_by"], hitl(done, "c2")["via"]) == ("ann", "web")
    assert await state(store, "mailer", second) == "resolved"
    for old in (first, second):
        with pytest.raises(CheckpointNotPendingError, match="resolved"):
            await resume_checkpoint(spec, old, approve("c1", "c2"), store=store)
    assert deeds.done == ["mail b"]


@pytest.mark.parametrize(
    "responses", [approve("c9"), [*approve("c1"), *deny("c1")], edit("c1", what=5)], ids=str
)
async def test_responses_that_do_not_fit_release_it(store: RunCheckpointStore, responses: Any) -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    checkpoint_id = await saved(store, await run_agent(spec, "go"))
    with pytest.raises(InvalidCheckpoint):
        await resume_checkpoint(spec, checkpoint_id, responses, store=store)
    assert deeds.done == []
    assert await state(store, "mailer", checkpoint_id) == "pending"
    assert len(await store.memory.pending()) == 2
    await resume_checkpoint(spec, checkpoint_id, approve("c1", "c2"), store=store)
    assert len(deeds.done) == 2


async def test_resumed_many_times_at_once_and_later_is_one_run(store: RunCheckpointStore) -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    checkpoint_id = await saved(store, await run_agent(spec, "go"))
    stores = [RunCheckpointStore(store.memory) for _ in range(10)]
    outcomes = await asyncio.gather(
        *(resume_checkpoint(spec, checkpoint_id, approve("c1", "c2"), store=each) for each in stores),
        return_exceptions=True,
    )
    won = [each for each in outcomes if isinstance(each, AgentResult)]
    assert [each.status for each in won] == ["completed"]
    assert sum(isinstance(each, CheckpointNotPendingError) for each in outcomes) == 9
    with pytest.raises(CheckpointNotPendingError):
        await resume_checkpoint(spec, checkpoint_id, deny("c1", "c2"), store=store)
    assert sorted(deeds.done) == ["mail a", "mail b"]


async def test_two_checkpoints_of_one_pause_are_one_run(store: RunCheckpointStore) -> None:
    """Saved under two ids, and resumed without the store as well: the thread goes on once."""
    deeds = Deeds()
    agent = Agent.from_spec(mailer(deeds), checkpointer=store.memory, thread_id="t")
    paused = await agent.prompt("go")
    again = await agent.resume()
    ids = [await saved(store, each) for each in (paused, again)]
    assert ids[0] != ids[1]
    await resume_checkpoint(mailer(deeds), ids[0], approve("c1", "c2"), store=store)
    with pytest.raises(InvalidCheckpoint, match="not pending here"):
        await resume_checkpoint(mailer(deeds), ids[1], approve("c1", "c2"), store=store)
    assert sorted(deeds.done) == ["mail a", "mail b"]


async def test_the_agent_may_go_on_by_itself(store: RunCheckpointStore) -> None:
    """The checkpoint of a stored thread is a handle to it, not a fork."""
    deeds = Deeds()
    spec = mailer(deeds)
    paused = await Agent.from_spec(spec, checkpointer=store.memory, thread_id="t").prompt("go")
    checkpoint_id = await saved(store, paused)
    await store.memory.settle("t", "c1", APPROVE)
    result = await resume_checkpoint(spec, checkpoint_id, approve("c2"), store=store)
    assert completed(result).keys() == {"c1", "c2"}
    assert sorted(deeds.done) == ["mail a", "mail b"]


async def test_a_checkpoint_of_another_spec_cannot_be_resumed(store: RunCheckpointStore) -> None:
    deeds = Deeds()
    checkpoint_id = await saved(store, await run_agent(mailer(deeds), "go"))
    with pytest.raises(CheckpointNotFound):
        await resume_checkpoint(mailer(deeds, TWO, "done", id="other"), checkpoint_id, [], store=store)
    assert await state(store, "mailer", checkpoint_id) == "pending"


async def test_what_came_out_of_a_store_is_not_resumed_without_it(store: RunCheckpointStore) -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    checkpoint_id = await saved(store, await run_agent(spec, "go"))
    found = await store.get("mailer", checkpoint_id)
    assert found is not None
    assert found.checkpoint is not None
    with pytest.raises(InvalidCheckpoint, match="kept in a store"):
        await run_agent_resume(spec, found.checkpoint, approve("c1", "c2"))
    assert deeds.done == []
