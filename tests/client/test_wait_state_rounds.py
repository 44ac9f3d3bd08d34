"""Round after round: begun by the agent with what it revised, or by the service itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kit.client_rig import Person, rig
from kit.scripted_server import Said, Scripted, scripted

from askfirst.client import HitlClient, ReviewOutcome
from askfirst.client.offer import read_offer
from askfirst.client.wait_state import MOST_ROUNDS, Rounds, WaitState, following
from askfirst.errors import ReviewContradiction

pytestmark = pytest.mark.anyio

QUICK: Any = {"poll_interval": 0.05, "min_poll_interval": 0.05}


async def test_the_agent_revises_and_the_person_reads_which_round_it_is(tmp_path: Path) -> None:
    async with rig(tmp_path) as at:
        previous: dict[str, str] = {}
        for number in (1, 2, 3):
            asking = at.ask(prompt=f"Draft {number}?", **previous)
            notice = await at.person.got(number=number)
            assert notice.round == number
            assert notice.body.startswith(f"Round {number}: " if number > 1 else "Draft 1?")
            await at.answer(notice, "edit" if number < 3 else "approve", {"feedback": "shorter"})
            outcome = await asking
            assert isinstance(outcome, ReviewOutcome)
            assert outcome.rounds == number
            previous = {"previous_case_id": outcome.case_id}
            if number < 3:
                assert (outcome.action, outcome.data["feedback"]) == ("edit", "shorter")
        assert outcome.action == "approve"


@pytest.mark.parametrize("action", ["edit", "approve"])
async def test_a_round_that_is_there_already_is_followed(tmp_path: Path, action: str) -> None:
    async with rig(tmp_path) as at:
        asking = at.ask()
        first = await at.person.got()
        second = await at.agent.open(previous_case_id=first.case_id)
        await at.answer(first, action, {"feedback": "shorter"} if action == "edit" else None)
        notice = await at.person.got(number=2)
        assert (notice.case_id, notice.round) == (second.case_id, 2)
        assert notice.body.startswith("Round 2: ")
        assert notice.review_url == first.review_url, "no other link is known"
        assert not asking.done()
        await second.say("reject")
        outcome = await asking
        assert (outcome.action, outcome.case_id, outcome.rounds) == ("reject", second.case_id, 2)


def _chain(server: Scripted, *, there: bool) -> None:
    """A case that was answered with ``edit``, and is followed by one that is there, or not yet."""
    server.script["/orders"] = [Said(202, server.offer())]
    done = {"status": "completed", "completed_at": "2026-01-01T00:00:00Z"}
    edit = {"result": {"action": "edit", "data": {}}, "next_case_id": "review_2"}
    server.script["/reviews/review_1/status"] = [Said(200, {**done, **edit, "case_id": "review_1"})]
    if there:
        approve = {"result": {"action": "approve", "data": {}}, "case_id": "review_2"}
        server.script["/reviews/review_2/status"] = [Said(503), Said(200, {**done, **approve})]


async def test_a_round_that_is_not_there_yet_is_the_agents_to_begin() -> None:
    async with scripted() as server, HitlClient(deliver=Person(), **QUICK) as client:
        _chain(server, there=False)
        outcome = await client.request("POST", f"{server.url}/orders", json={})
        assert (outcome.action, outcome.case_id, outcome.rounds) == ("edit", "review_1", 1)
        assert outcome.next_case_id == "review_2"


async def test_trouble_on_the_way_to_the_next_round_is_outlived() -> None:
    async with scripted() as server, HitlClient(deliver=Person(), **QUICK) as client:
        _chain(server, there=True)
        outcome = await client.request("POST", f"{server.url}/orders", json={})
        assert (outcome.action, outcome.case_id, outcome.rounds) == ("approve", "review_2", 2)


# Where the next case is.


def state(**fields: Any) -> WaitState:
    hitl = {
        "spec_version": "0.8",
        "case_id": "review_1",
        "review_url": "https://a.example/review/review_1?token=t",
        "poll_url": "https://a.example/reviews/review_1/status",
        "type": "approval",
        "prompt": "Ship it?",
        "created_at": "2026-02-22T10:00:00Z",
        "expires_at": "2026-02-23T10:00:00Z",
        "submit_url": "https://a.example/reviews/review_1/submit",
        "submit_token": "t" * 43,
        **fields,
    }
    offer = read_offer(202, "https://a.example/", {"status": "human_input_required", "hitl": hitl})
    assert offer is not None
    return WaitState(offer)


def test_the_addresses_of_the_next_case_are_those_of_this_one_with_its_id() -> None:
    later = following(state(events_url="https://a.example/e/review_1?since=review_1"), "review_2")
    assert later is not None
    hitl = later.offer.hitl
    assert hitl.poll_url == "https://a.example/reviews/review_2/status"
    assert hitl.events_url == "https://a.example/e/review_2?since=review_1"
    assert (hitl.submit_url, hitl.submit_token) == (None, None)
    assert (later.round, later.earlier) == (2, ("review_1",))


@pytest.mark.parametrize(
    "poll_url",
    [
        "https://a.example/reviews/r1/status",
        "https://a.example/review_1/review_1",
        "https://a.example/reviews/review_10",
        "https://a.example/status?case=review_1",
    ],
)
def test_where_the_id_is_not_in_the_path_nothing_is_guessed(poll_url: str) -> None:
    assert following(state(poll_url=poll_url), "review_2") is None


def test_rounds_do_not_go_in_circles_nor_on_for_ever() -> None:
    begun = state()
    with pytest.raises(ReviewContradiction, match="circles"):
        following(begun, "review_1")
    with pytest.raises(ReviewContradiction, match="circles"):
        following(begun.but(earlier=("review_0",)), "review_0")
    with pytest.raises(ReviewContradiction, match="rounds"):
        following(begun.but(earlier=tuple(f"r{number}" for number in range(MOST_ROUNDS - 1))), "review_2")


def test_a_case_that_follows_one_nobody_knows_is_at_least_the_second() -> None:
    rounds = Rounds()
    assert rounds.begin(state().offer).round == 1
    assert rounds.begin(state(previous_case_id="unknown").offer).round == 2
    assert rounds.begin(state(previous_case_id="review_1").offer).round == 1  # itself
    rounds.ended(state(case_id="review_0").but(earlier=("a", "b")))
    assert rounds.begin(state(previous_case_id="review_0").offer).round == 4


async def test_many_chains_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as at:

        async def chain() -> ReviewOutcome:
            first = await at.agent.open()
            body = {"type": "approval", "prompt": "p", "previous_case_id": first.case_id}
            return await at.client.request("POST", f"{at.served.url}/v1/reviews", json=body)  # type: ignore[return-value]

        chains = [asyncio.create_task(chain()) for _ in range(20)]
        for number in range(1, 21):
            notice = await at.person.got(number=number)
            assert notice.round == 2
            await at.answer(notice, "approve")
        outcomes = await asyncio.gather(*chains)
        assert {outcome.rounds for outcome in outcomes} == {2}
