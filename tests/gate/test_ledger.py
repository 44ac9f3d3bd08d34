"""The verbs for adapters: open, decision, begin, finish and fail on a key of theirs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from askfirst.checkpointer.base import Step
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import GrantLost, HitlError, KeyConflict, NotApproved
from askfirst.gate.action import Action
from askfirst.gate.gate import Gate
from askfirst.gate.key_state import thread_of
from askfirst.gate.outcomes import Approved, Finished, Granted, InDoubt, Refused, Stored
from askfirst.service.audit import export, verify

pytestmark = pytest.mark.anyio

ACTION = Action(tool="pay", args={"cents": 4900})


@pytest.fixture
async def gate(checkpointer: SqlCheckpointer) -> AsyncIterator[Gate]:
    async with Gate(checkpointer) as made:
        yield made


async def test_a_key_from_open_to_finished(gate: Gate) -> None:
    assert await gate.open("k", ACTION) is None
    assert await gate.open("k", ACTION) is None
    assert await gate.decision("k") is None
    with pytest.raises(NotApproved):
        await gate.begin("k", ACTION.args)
    await gate.answer("k", {"decision": "approve"}, by="ada")
    assert await gate.decision("k") == Approved({"cents": 4900}, "ada")
    granted = await gate.begin("k", ACTION.args)
    assert isinstance(granted, Granted)
    assert granted.attempt == 1
    await gate.finish("k", {"receipt": 7})
    assert await gate.begin("k", ACTION.args) == Finished(Stored(value={"receipt": 7}))
    with pytest.raises(HitlError, match="no body was begun"):
        await gate.finish("k", {"receipt": 8})


async def test_an_approval_counts_for_the_arguments_it_was_given_for(gate: Gate) -> None:
    await gate.open("k", ACTION)
    await gate.answer("k", {"decision": "edit", "edited_args": {"cents": 100}})
    assert await gate.decision("k") == Approved({"cents": 100}, is_edited=True)
    for args in ({"cents": 4900}, {"cents": 99}):
        with pytest.raises(NotApproved):
            await gate.begin("k", args)
    assert isinstance(await gate.begin("k", {"cents": 100}), Granted)


async def test_a_denial_begins_nothing(gate: Gate) -> None:
    await gate.open("k", ACTION)
    await gate.answer("k", {"decision": "deny", "reason": "no"}, by="ada")
    assert await gate.decision("k") == Refused("no", "ada")
    with pytest.raises(NotApproved):
        await gate.begin("k", ACTION.args)


async def test_another_action_has_another_key(gate: Gate) -> None:
    await gate.open("k", ACTION)
    with pytest.raises(KeyConflict):
        await gate.open("k", Action(tool="pay", args={"cents": 1}))
    with pytest.raises(HitlError, match="call open"):
        await gate.begin("other", {})


async def test_a_failure_is_kept(gate: Gate) -> None:
    action = Action(tool="pay", args={}, requires_approval=False)
    assert await gate.open("k", action) == Approved({})
    await gate.begin("k", {})
    await gate.fail("k", ValueError("no money"))
    assert await gate.begin("k", {}) == Finished(Stored(error="ValueError: no money"))


@pytest.mark.parametrize(("answer", "expected"), [("retry", Granted), ("skip", Refused), ("abort", Refused)])
async def test_a_body_that_was_lost(gate: Gate, answer: str, expected: type[Any]) -> None:
    action = Action(tool="pay", args={}, requires_approval=False)
    await gate.open("k", action)
    first = await gate.begin("k", {})
    assert isinstance(first, Granted)
    await gate.ledger.abandon("k")
    for _ in range(2):
        doubt = await gate.begin("k", {})
        assert isinstance(doubt, InDoubt)
    assert len(await gate.pending()) == 1
    await gate.answer("k", answer)
    again = await gate.begin("k", {})
    assert isinstance(again, expected)
    if isinstance(again, Granted):
        assert (again.attempt, again.idempotency_key) == (2, first.idempotency_key)


async def test_a_policy_that_denies_refuses(checkpointer: SqlCheckpointer) -> None:
    class Never:
        def evaluate(self, action: Any) -> Any:
            raise RuntimeError("broken")

    async with Gate(checkpointer, policy=Never()) as gate:
        assert isinstance(await gate.open("k", ACTION), Refused)
        assert await gate.pending() == []


async def test_what_the_policy_allows_is_allowed_with_these_arguments_alone(gate: Gate) -> None:
    action = Action(tool="pay", args={"cents": 1}, requires_approval=False)
    assert await gate.open("k", action) == Approved({"cents": 1})
    assert await gate.decision("k") == Approved({"cents": 1})
    with pytest.raises(NotApproved):
        await gate.begin("k", {"cents": 100_000})
    assert isinstance(await gate.begin("k", {"cents": 1}), Granted)


async def test_a_retry_counts_for_the_arguments_that_were_approved(gate: Gate) -> None:
    await gate.open("k", ACTION)
    await gate.answer("k", {"decision": "approve"})
    assert isinstance(await gate.begin("k", ACTION.args), Granted)
    await gate.ledger.abandon("k")
    with pytest.raises(NotApproved):
        await gate.begin("k", {"cents": 1})
    assert isinstance(await gate.begin("k", ACTION.args), InDoubt)
    await gate.answer("k", "retry")
    with pytest.raises(NotApproved):
        await gate.begin("k", {"cents": 1})
    assert isinstance(await gate.begin("k", ACTION.args), Granted)


async def test_a_call_that_ran_gives_its_result_though_the_policy_asks_by_now(gate: Gate) -> None:
    allowed = Action(tool="pay", args={"cents": 1}, requires_approval=False)
    await gate.open("k", allowed)
    await gate.begin("k", {"cents": 1})
    await gate.finish("k", 7)
    asking = replace(allowed, requires_approval=True)
    assert await gate.open("k", asking) == Approved({"cents": 1})
    assert await gate.begin("k", {"cents": 1}) == Finished(Stored(value=7))
    assert await gate.pending() == []
    with pytest.raises(KeyConflict):
        await gate.open("k", replace(asking, args={"cents": 2}))


async def test_a_late_end_is_refused_and_recorded(checkpointer: SqlCheckpointer) -> None:
    async with Gate(checkpointer) as slow, Gate(checkpointer) as quick:
        action = Action(tool="pay", args={}, requires_approval=False)
        await slow.open("k", action)
        await slow.begin("k", {})
        stored = await checkpointer.load(thread_of("k"))
        assert stored is not None
        step = Step("gate", release=True)  # as if its lease had lapsed, and somebody had asked what to do
        await checkpointer.commit(thread_of("k"), step, fence=stored.fence)
        await quick.open("k", action)
        assert isinstance(await quick.begin("k", {}), InDoubt)
        with pytest.raises(GrantLost, match="'k' was lost"):
            await slow.finish("k", 7)
        [doubt] = await quick.pending()
        await quick.answer(doubt, "retry")
        assert isinstance(await quick.begin("k", {}), Granted)
        await quick.finish("k", 8)
        assert await slow.begin("k", {}) == Finished(Stored(value=8))
    acts = [json.loads(row) async for row in export(checkpointer.engine)]
    assert (await verify(checkpointer.engine)).is_whole
    [late] = [row for row in acts if row["act"] == "effect.late"]
    assert late["subject"] == "gate:k"
    assert late["detail"]["ended"] == "finished"
