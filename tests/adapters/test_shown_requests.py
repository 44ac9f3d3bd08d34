"""Requests that a conversation was shown: answered in it, once, by a known person, and from nowhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from askfirst import Gate, SQLiteCheckpointer
from askfirst.adapters.shown_requests import ABANDONED, ShownRequests
from askfirst.errors import HitlError, HitlInvalidAnswer, Pending
from askfirst.gate.outcomes import Ran
from askfirst.hitl.testing import FakeClock

pytestmark = pytest.mark.anyio
YES, NO = {"approved": True}, {"approved": False, "reason": "too dear"}


def pay(cents: int) -> str:
    return f"paid {cents}"


async def waits(gate: Gate, key: str) -> Pending:
    outcome = await gate.call(pay, {"cents": 5}, key=key, wait=0)
    assert isinstance(outcome, Pending)
    return outcome


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


async def test_what_was_shown_is_answered_by_whoever_the_host_names_in_another_process(url: str) -> None:
    async with Gate(url, base_url="https://a.example") as gate:
        [shown] = await ShownRequests(gate, "test").show("t1", {"call_7": await waits(gate, "k")})
        assert shown.call_id == "call_7"
        assert shown.link == f"https://a.example/review/{shown.case}"
        assert (shown.facts["tool"], shown.facts["args"]) == ("pay", {"cents": 5})
    async with Gate(url) as gate:
        assert await ShownRequests(gate, "test").settle("t1", {shown.case: YES}, by="ada") == []
        settled = await gate.checkpointer.request(shown.stored.thread_id, "call")
        assert settled is not None
        assert (settled.answered_by, settled.via) == ("ada", "test")
        assert await gate.call(pay, {"cents": 5}, key="k", wait=0) == Ran("paid 5")
        assert await ShownRequests(gate, "test").open("t1") == []


async def test_an_id_counts_in_its_conversation_and_its_protocol_alone(url: str) -> None:
    async with Gate(url) as gate:
        requests = ShownRequests(gate, "test")
        [shown] = await requests.show("t1", [await waits(gate, "k")])
        assert await requests.settle("t2", {shown.case: YES}, by="eve") == [shown.case]
        assert await ShownRequests(gate, "other").settle("t1", {shown.case: YES}, by="eve") == [shown.case]
        assert await requests.settle("t1", {"review_0": YES, shown.stored.thread_id: YES}, by="eve") != []
        assert [it.case for it in await requests.open("t1")] == [shown.case]


async def test_the_first_answer_counts_and_the_second_changes_nothing(url: str) -> None:
    async with Gate(url) as gate:
        requests = ShownRequests(gate, "test")
        [shown] = await requests.show("t1", [await waits(gate, "k")])
        await asyncio.gather(*(requests.settle("t1", {shown.case: it}, by="ada") for it in (NO, YES, YES)))
        first = await gate.checkpointer.request(shown.stored.thread_id, "call")
        await requests.settle("t1", {shown.case: YES}, by="eve")
        assert await gate.checkpointer.request(shown.stored.thread_id, "call") == first


async def test_one_payload_that_does_not_fit_undoes_all(url: str) -> None:
    async with Gate(url) as gate:
        requests = ShownRequests(gate, "test")
        both = await requests.show("t1", [await waits(gate, "k1"), await waits(gate, "k2")])
        with pytest.raises(HitlInvalidAnswer):
            await requests.settle("t1", {both[0].case: YES, both[1].case: {"approved": "yes"}}, by="ada")
        assert len(await requests.open("t1")) == 2
        await requests.settle("t1", {both[0].case: YES}, by="ada")
        assert [it.case for it in await requests.open("t1")] == [both[1].case]


async def test_nobody_in_particular_answers_nothing(url: str) -> None:
    async with Gate(url) as gate:
        requests = ShownRequests(gate, "test")
        [shown] = await requests.show("t1", [await waits(gate, "k")])
        with pytest.raises(HitlError, match="the user that your server has verified"):
            await requests.settle("t1", {shown.case: YES}, by="")
        assert len(await requests.open("t1")) == 1


async def test_what_is_given_up_does_not_run(url: str) -> None:
    async with Gate(url) as gate:
        requests = ShownRequests(gate, "test")
        [shown] = await requests.show("t1", [await waits(gate, "k")])
        await requests.settle("t1", {shown.case: ABANDONED}, by="ada")
        denied: Any = await gate.call(pay, {"cents": 5}, key="k", wait=0)
        assert "abandoned it" in denied.reason


async def test_a_request_whose_time_is_up_is_not_open(tmp_path: Path) -> None:
    clock = FakeClock()
    async with SQLiteCheckpointer(tmp_path / "a.db", clock=clock) as store:
        gate = Gate(store, timeout=60, clock=clock)
        requests = ShownRequests(gate, "test")
        [shown] = await requests.show("t1", [await waits(gate, "k")])
        await clock.advance(61)
        assert await requests.open("t1") == []
        await requests.settle("t1", {shown.case: YES}, by="ada")
        settled = await store.request(shown.stored.thread_id, "call")
        assert settled is not None
        assert settled.status == "timed_out"


async def test_what_was_answered_a_moment_ago_is_shown_once_more(url: str) -> None:
    async with Gate(url) as gate:
        requests = ShownRequests(gate, "test")
        pending = await waits(gate, "k")
        await gate.answer("k", {"decision": "approve"})
        assert [it.case for it in await requests.show("t1", [pending])] == [pending.case]
        assert await requests.open("t1") == []
        with pytest.raises(HitlError, match="none of the given requests waits"):
            await requests.show("t2", [])


async def test_processes_that_show_at_once_lose_nothing(url: str) -> None:
    async with Gate(url) as gate:
        pending = [await waits(gate, f"k{number}") for number in range(6)]
        await asyncio.gather(*(ShownRequests(gate, "test").show("t1", [it]) for it in pending))
        assert {it.case for it in await ShownRequests(gate, "test").open("t1")} == {it.case for it in pending}
