"""A paused run that is put on threads of a store: what people were asked stands there as it stood."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from kit.deeds import TWO, Deeds, approve, call, mailer, paused_at
from kit.dying_stores import Died, dying_after
from kit.stores import confirmation

from askfirst import run_agent, run_agent_resume
from askfirst.agent.result import KeptRequest
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpoints import RunCheckpointStore
from askfirst.requests import StoredRequest

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "how",
    [
        {"status": "answered", "answer": True, "answered_by": "ann", "via": "web"},
        {"status": "cancelled", "reason": "no need", "answered_by": "ann", "via": "web"},
        {"status": "superseded"},
        {"status": "superseded", "reason": "superseded by a newer prompt"},
        {"status": "aborted", "reason": "enough"},
        {"status": "timed_out"},
    ],
    ids=lambda how: how["status"],
)
async def test_a_settled_request_stays_settled_the_way_it_was(
    checkpointer: SqlCheckpointer, how: dict[str, Any]
) -> None:
    """Such as a question in whose place another was asked: it is over, and nobody has cancelled it."""
    paused = await run_agent(mailer(Deeds()), "go")
    assert paused.checkpoint is not None
    settled = StoredRequest(confirmation("c1:confirm:1"), "t", None, **how)
    checkpoint = paused.checkpoint.model_copy(update={"root_requests": (KeptRequest.of(settled),)})
    for _ in range(2):  # the second time, all of it is there
        await RunCheckpointStore(checkpointer).save("mailer", checkpoint)
    assert checkpoint.thread_id is not None
    found = await checkpointer.request(checkpoint.thread_id, "c1:confirm:1")
    assert found is not None
    said = {name: getattr(found, name) for name in ("status", "answer", "reason", "answered_by", "via")}
    assert {name: value for name, value in said.items() if value is not None} == how
    stored = await checkpointer.load(checkpoint.thread_id)
    assert stored is not None
    assert not stored.is_leased


@pytest.mark.parametrize("commits", [0, 1, 2])
async def test_a_process_that_dies_of_it_leaves_nothing_half_settled(
    checkpointer: SqlCheckpointer, commits: int
) -> None:
    """What one person has answered, another is not asked."""
    spec = mailer(Deeds())
    first = paused_at(await run_agent(spec, "go"), "c1", "c2")
    over = StoredRequest(confirmation("c1:confirm:1"), "t", None, "superseded")
    paused = await run_agent_resume(spec, first, approve("c1"))
    checkpoint = paused_at(paused, "c2")
    kept = (*checkpoint.root_requests, KeptRequest.of(over))
    checkpoint = checkpoint.model_copy(update={"root_requests": kept})
    with contextlib.suppress(Died), dying_after(checkpointer, commits):
        await RunCheckpointStore(checkpointer).save("mailer", checkpoint)
    assert {it.question_id for it in await checkpointer.pending()} <= {"c2"}


async def test_what_was_answered_between_two_checkpoints_is_not_asked_any_more(
    checkpointer: SqlCheckpointer,
) -> None:
    """Both of them are saved; the run went on from the first in between, without the store."""
    spec = mailer(Deeds())
    store = RunCheckpointStore(checkpointer)
    first = paused_at(await run_agent(spec, "go"), "c1", "c2")
    await store.save("mailer", first)
    second = paused_at(await run_agent_resume(spec, first, approve("c1")), "c2")
    await store.save("mailer", second)
    assert [it.question_id for it in await checkpointer.pending()] == ["c2"]
    assert second.thread_id is not None
    answered = await checkpointer.request(second.thread_id, "c1")
    assert answered is not None
    assert answered.status == "answered"


async def test_what_was_done_between_two_checkpoints_is_not_asked_any_more(
    checkpointer: SqlCheckpointer,
) -> None:
    spec = mailer(Deeds(), TWO, call("c3", "mail", "c"), "done")
    store = RunCheckpointStore(checkpointer)
    first = paused_at(await run_agent(spec, "go"), "c1", "c2")
    await store.save("mailer", first)
    await store.save("mailer", paused_at(await run_agent_resume(spec, first, approve("c1", "c2")), "c3"))
    assert [it.question_id for it in await checkpointer.pending()] == ["c3"]
