"""Chains of cases: each knows the one before it and the one after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.running_service import serving

pytestmark = pytest.mark.anyio


async def test_a_chain_is_walked_in_both_directions(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", quick=False) as served:
        agent = await served.agent()
        chain = [await agent.open()]
        for number in range(3):
            await chain[-1].say("edit", {"feedback": f"round {number}"})
            before = await agent.get(chain[-1].hitl["poll_url"])
            chain.append(await agent.open(previous_case_id=chain[-1].case_id))
            after = await agent.get(chain[-2].hitl["poll_url"])
            assert before.headers["etag"] != after.headers["etag"]
        await chain[-1].say("approve")
        polled = [await case.poll() for case in chain]
        ids = [case.case_id for case in chain]
        assert [poll.get("next_case_id") for poll in polled] == [*ids[1:], None]
        assert [case.hitl.get("previous_case_id") for case in chain] == [None, *ids[:-1]]
        assert [poll["result"]["action"] for poll in polled] == ["edit", "edit", "edit", "approve"]


async def test_a_case_is_followed_once(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", quick=False) as served:
        agent = await served.agent()
        first = await agent.open()
        second = await agent.open(previous_case_id=first.case_id)
        body = {"type": "approval", "prompt": "p", "previous_case_id": first.case_id}
        refused = await agent.post("/v1/reviews", body)
        assert refused.status_code == 422
        assert "previous_case_id" in refused.json()["faults"]
        assert (await first.poll())["next_case_id"] == second.case_id


async def test_the_same_round_opened_again_is_the_same_case(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", quick=False) as served:
        agent = await served.agent()
        first = await agent.open()
        body = {"type": "approval", "prompt": "p", "previous_case_id": first.case_id}
        answers = [await agent.post("/v1/reviews", body, **{"Idempotency-Key": "r"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert len({answer.json()["hitl"]["case_id"] for answer in answers}) == 1
