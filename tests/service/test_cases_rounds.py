"""Chains of cases: each knows the one before it and the one after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.running_service import BROWSER, serving

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


async def test_a_new_round_tells_which_try_it_is_and_what_is_new(tmp_path: Path) -> None:
    """A service's facts are compared, as the arguments of an agent's call are."""
    async with serving(f"sqlite:///{tmp_path}/cases.db", quick=False) as served:
        agent = await served.agent()
        takes = ["3 to 5", "4 to 6", "5 to 7"]
        chain = [await agent.open(context={"text": f"It takes {takes[0]} days.", "to": "ada@example.com"})]
        for number in (1, 2):
            await chain[-1].say("edit", {"feedback": f"Look again, {number}."})
            context = {"text": f"It takes {takes[number]} days.", "to": "ada@example.com"}
            chain.append(await agent.open(context=context, previous_case_id=chain[-1].case_id))
        pages = [(await served.http.get(it.hitl["review_url"], headers=BROWSER)).text for it in chain]
        in_chinese = {**BROWSER, "Accept-Language": "zh"}
        chinese = (await served.http.get(chain[2].hitl["review_url"], headers=in_chinese)).text
    assert "Try " not in pages[0]
    assert '<li class="chip">Try 3</li>' in pages[2]
    card = pages[2].partition('class="round card"')[2].partition("</section>")[0]
    assert "Try 2: Another try was asked for by somebody with the link, <time datetime=" in card
    assert "Look again, 2." in card
    assert "It takes <del>4</del><ins>5</ins> to <del>6</del><ins>7</ins> days." in card
    assert "ada@example.com" not in card, "what stayed the same is not news"
    assert '<li class="chip">第 3 次提交</li>' in chinese
    assert "要求重新提交" in chinese
