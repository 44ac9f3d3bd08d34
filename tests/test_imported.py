"""A paused run that is put on threads of a store: what people were asked stands there as it stood."""

from __future__ import annotations

from typing import Any

import pytest
from asking import Deeds, mailer
from stores import confirmation

from assent import run_agent
from assent.agent.checkpoint import KeptRequest
from assent.checkpointer.sql import SqlCheckpointer
from assent.checkpoints import RunCheckpointStore
from assent.requests import StoredRequest

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "how",
    [
        {"status": "answered", "answer": True, "answered_by": "ann", "via": "web"},
        {"status": "cancelled", "reason": "no need", "answered_by": "ann", "via": "web"},
        {"status": "superseded"},
        {"status": "superseded", "reason": "superseded by a newer prompt"},
        {"status": "aborted", "reason": "enough"},
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
