"""Using up what others need: cases, bytes, streams, drafts, answers and fetches have budgets (M8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.callback_receivers import receiving
from kit.proof_badges import POLICY, Badges
from kit.running_service import Agent, HandClock, Opened, Served, serving, until
from kit.stores import SHARED, Database
from sqlalchemy import func, select

from askfirst.protocol.submit import ErrorBody
from askfirst.service import egress, transitions
from askfirst.service.budgets import LEASE_MILLISECONDS, Budgets, OpenStreams
from askfirst.service.cases import Cases
from askfirst.service.new_review import ReviewRequest
from askfirst.store.case_tables import case_events, counts
from askfirst.store.statement import Statement

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
using_up = pytest.mark.attack("M8", "using up what others need")
REVIEW = {"type": "approval", "prompt": "Please decide."}


@asynccontextmanager
async def two_processes(database: Database, **options: Any) -> AsyncIterator[tuple[Served, Served]]:
    """Two services on one database."""
    async with (
        database.checkpointer() as one,
        database.checkpointer() as other,
        serving(one, **options) as first,
        serving(other, **options) as second,
    ):
        yield first, second


@asynccontextmanager
async def on_file(folder: Path, **options: Any) -> AsyncIterator[Served]:
    async with serving(f"sqlite:///{folder}/cases.db", **options) as served:
        yield served


def refused(answer: httpx2.Response, budget: str, status: int = 429) -> None:
    """A refusal for this budget, in the protocol's shape and with a sentence."""
    assert answer.status_code == status, answer.text
    ErrorBody.read(answer.json())
    assert (answer.json()["error"], answer.json()["budget"]) == ("over_budget", budget)
    assert answer.json()["message"].endswith(".")
    assert ("retry-after" in answer.headers) == (status == 429)


# Cases.


@using_up
@each_store
async def test_open_cases_of_a_key_are_bounded_over_all_processes(
    database: Database, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(20)
    budgets = Budgets(open_cases=5)
    async with two_processes(database, budgets=budgets) as (first, second):
        agent, other = await first.agent("greedy"), await first.agent("other")
        there = Agent(second, agent.key_id, agent.headers)
        asked = [each.post("/v1/reviews", REVIEW) for each in (agent, there) * 10]
        answers = await asyncio.gather(*asked)
        opened = [answer for answer in answers if answer.status_code == 202]
        assert len(opened) == 5
        for answer in answers:
            if answer not in opened:
                refused(answer, "open_cases")
        await other.open()  # another key has its own
        case = Opened(agent, opened[0].json()["hitl"])
        assert (await case.cancel()).status_code == 200
        again = Opened(there, (await there.post("/v1/reviews", REVIEW)).json()["hitl"])
        refused(await agent.post("/v1/reviews", REVIEW), "open_cases")
        assert (await again.form(action="approve")).status_code == 303
        await agent.open()


@using_up
async def test_a_repeated_idempotency_key_uses_nothing_up(tmp_path: Path) -> None:
    async with on_file(tmp_path, budgets=Budgets(open_cases=1)) as served:
        agent = await served.agent()
        first = await agent.post("/v1/reviews", REVIEW, **{"Idempotency-Key": "once"})
        again = await agent.post("/v1/reviews", REVIEW, **{"Idempotency-Key": "once"})
        assert (first.status_code, again.status_code) == (202, 202)
        refused(await agent.post("/v1/reviews", REVIEW), "open_cases")


@using_up
async def test_nobody_is_worn_out_by_one_key(tmp_path: Path) -> None:
    clock = HandClock()
    async with on_file(tmp_path, clock=clock, budgets=Budgets(cases_per_hour=10)) as served:
        agent = await served.agent()
        for _ in range(10):
            case = await agent.open()
            await case.cancel()
            clock.turn(120)
        over = await agent.post("/v1/reviews", REVIEW)
        refused(over, "cases_per_hour")
        assert int(over.headers["retry-after"]) == 3600 - 10 * 120
        clock.turn(int(over.headers["retry-after"]))
        await agent.open()
        refused(await agent.post("/v1/reviews", REVIEW), "cases_per_hour")


@using_up
async def test_stored_bytes_of_a_key_are_bounded_until_they_are_purged(tmp_path: Path) -> None:
    clock = HandClock()
    large = {**REVIEW, "context": {"text": "x" * 40_000}}
    async with on_file(tmp_path, clock=clock, budgets=Budgets(stored_bytes=100_000)) as served:
        agent, other = await served.agent("greedy"), await served.agent("other")
        for _ in range(2):
            case = Opened(agent, (await agent.post("/v1/reviews", large)).json()["hitl"])
            await case.cancel()  # one that has ended is stored still
        refused(await agent.post("/v1/reviews", large), "stored_bytes", 409)
        await agent.open()  # a small one has room
        await other.open(context={"text": "x" * 40_000})
        clock.turn(31 * 86_400)
        assert await served.service.cases.purge(30) == 2
        assert (await agent.post("/v1/reviews", large)).status_code == 202


@using_up
async def test_many_uses_take_a_few_numbers_to_remember(tmp_path: Path) -> None:
    clock = HandClock()
    async with on_file(tmp_path, clock=clock, budgets=Budgets(posts_per_minute=10_000)) as served:
        spending = served.service.quotas.spending
        for _ in range(300):
            await spending.post("a link")
            clock.turn(1)
        rows = await served.service.cases.engine.read(_counted)
        assert len(rows) == 1
        assert len(rows[0][0]) < 61 * 20
        clock.turn(3 * 3600)
        await spending.forget()
        assert await served.service.cases.engine.read(_counted) == []


def _counted() -> Any:
    return (yield Statement(select(counts.c.used)), {})


# Streams.


@using_up
@each_store
async def test_streams_of_a_key_are_bounded_over_all_processes(
    database: Database, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(8)
    async with (
        two_processes(database, budgets=Budgets(streams_per_key=4)) as (first, second),
        AsyncExitStack() as stack,
    ):
        agent = await first.agent()
        case = await agent.open()
        path = f"/v1/reviews/{case.case_id}/events"

        async def follow(served: Served) -> httpx2.Response:
            request = served.http.stream("GET", path, headers=agent.headers)
            return await stack.enter_async_context(request)

        streams = [await follow(served) for served in (first, second) * 4]
        assert [stream.status_code for stream in streams] == [200] * 4 + [429] * 4
        for stream in streams[4:]:
            await stream.aread()
            refused(stream, "streams_per_key")
        await streams[0].aclose()

        async def free() -> bool:
            return (await follow(second)).status_code == 200

        await until(free)
        await case.cancel()  # every stream ends, so that the services can


@using_up
async def test_streams_from_an_address_are_bounded_whatever_the_key(tmp_path: Path) -> None:
    async with on_file(tmp_path, budgets=Budgets(streams_per_address=2)) as served:
        agents = [await served.agent(f"key {n}") for n in range(3)]
        cases = [await agent.open() for agent in agents]
        async with AsyncExitStack() as stack:
            seen: list[int] = []
            for case, address in zip(
                [*cases, *cases], ["203.0.113.7"] * 3 + ["203.0.113.8"] * 3, strict=True
            ):
                headers = {**case.agent.headers, "X-Forwarded-For": address}
                request = served.http.stream("GET", f"/v1/reviews/{case.case_id}/events", headers=headers)
                seen.append((await stack.enter_async_context(request)).status_code)
            assert seen == [200, 200, 429, 200, 200, 429]
            for case in cases:
                await case.cancel()


@each_store
async def test_the_streams_of_a_process_that_died_count_no_longer(database: Database) -> None:
    clock = HandClock()
    async with database.checkpointer() as store:
        cases = Cases(store, clock=clock)
        await cases.create("key", ReviewRequest(**REVIEW))
        dead, alive = (OpenStreams(cases.engine, Budgets(streams_per_key=2), clock) for _ in range(2))
        await dead.begin("key", None)
        await alive.begin("key", None)
        clock.turn(LEASE_MILLISECONDS / 1000 - 1)
        await alive.renew()
        with pytest.raises(Exception, match="follows too many cases"):
            await alive.begin("key", None)
        clock.turn(1)
        await alive.begin("key", None)
        with pytest.raises(Exception, match="follows too many cases"):
            await alive.begin("key", None)


# Links.

FORM = {"form": {"fields": [{"key": "name", "label": "Name", "type": "text"}]}}


@using_up
async def test_three_hundred_drafts_are_a_few_events(
    tmp_path: Path, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(300)
    async with on_file(tmp_path) as served:
        opened = await (await served.agent()).open("input", context=FORM)
        case = await served.service.cases.get(opened.case_id)
        for number in range(300):
            progress = {"completed_fields": 1, "total_fields": 1, "current_step": number}
            await served.service.cases.draft(case, {"name": f"draft {number}"}, progress)
        events = await served.service.cases.events(opened.case_id, 0)
        assert len(events) == transitions.MOST_DRAFTS
        assert '"current_step":299' in events[-1][2]
        assert (await served.service.cases.get(opened.case_id)).draft == {"name": "draft 299"}

        def stored() -> Any:
            return (yield Statement(select(func.count()).select_from(case_events)), {})

        assert await served.service.cases.engine.read(stored) == [(transitions.MOST_DRAFTS,)]


@using_up
async def test_drafts_by_a_link_are_bounded_and_what_was_typed_stays(tmp_path: Path) -> None:
    clock = HandClock()
    async with on_file(tmp_path, clock=clock) as served:
        case = await (await served.agent()).open("input", context=FORM)
        posts = [{"step": "1", "intent": "draft", "f.name": f"draft {n}", "shown": "name"} for n in range(61)]
        answers = [await case.form(**post) for post in posts]
        assert [answer.status_code for answer in answers] == [200] * 60 + [429]
        assert int(answers[-1].headers["retry-after"]) <= 60
        assert "text/html" in answers[-1].headers["content-type"]
        assert "This link was used too often" in answers[-1].text
        assert "draft 60" in answers[-1].text
        assert (await served.service.cases.get(case.case_id)).draft == {"name": "draft 59"}
        clock.turn(60)
        assert (await case.form(**posts[60])).status_code == 200


@using_up
async def test_wrong_answers_by_a_link_are_bounded(
    tmp_path: Path, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(70)
    async with on_file(tmp_path, clock=HandClock()) as served:
        agent = await served.agent()
        case, other = await agent.open(), await agent.open()
        answers = [await case.say("no such action") for _ in range(70)]
        assert [answer.status_code for answer in answers] == [422] * 60 + [429] * 10
        refused(answers[-1], "posts_per_minute")
        assert (await other.say("approve")).status_code == 200


class CountingBadges(Badges):
    """Badges that count how often they are looked at."""

    looked_at = 0

    async def verify(self, *args: Any) -> Any:
        self.looked_at += 1
        return await super().verify(*args)


@using_up
@pytest.mark.parametrize("by_page", [True, False])
async def test_a_short_proof_cannot_be_tried_without_end(
    tmp_path: Path, by_page: bool, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(50)
    clock = HandClock()
    badges = CountingBadges(clock)
    options: Any = {
        "clock": clock,
        "verification": {"badge": badges},
        "budgets": Budgets(posts_per_minute=999),
    }
    async with on_file(tmp_path, **options) as served:
        agent = await served.agent()
        case, other = [await agent.open("confirmation", verification_policy=POLICY) for _ in range(2)]
        statuses = []
        for number in range(50):
            answer = await _guess(case, number, by_page)
            statuses.append(answer.status_code)
        assert statuses == [403] * 20 + [429] * 30
        assert badges.looked_at == 20
        assert (await _guess(other, 0, by_page)).status_code == 403  # another case has its own


async def _guess(case: Opened, number: int, by_page: bool) -> httpx2.Response:
    if by_page:
        return await case.form(action="confirm", **{"proof.0": f"{number:04}"})
    evidence = {
        "proof_type": "proof_of_human",
        "provider": "badge",
        "format": "provider_opaque",
        "presentation": f"{number:04}",
        "binding": {"case_id": case.case_id, "action": "confirm", "challenge": "c-1"},
    }
    body = {"action": "confirm", "verification_evidence": [evidence]}
    url = f"/review/{case.case_id}/respond?token={case.token}"
    return await case.http.post(url, json=body)


@using_up
async def test_tries_from_an_address_are_bounded_over_cases(tmp_path: Path) -> None:
    clock = HandClock()
    badges = CountingBadges(clock)
    budgets = Budgets(tries_per_address=3)
    async with on_file(tmp_path, clock=clock, verification={"badge": badges}, budgets=budgets) as served:
        agent = await served.agent()
        cases = [await agent.open("confirmation", verification_policy=POLICY) for _ in range(5)]
        seen: list[int] = []
        for case in cases:
            url = f"/review/{case.case_id}/respond?token={case.token}"
            # One household has a network of 64 bits, and as many addresses as it likes in it.
            headers = {"X-Forwarded-For": f"2001:db8::{len(seen):x}"}
            answer = await case.http.post(url, data={"action": "confirm", "proof.0": "1"}, headers=headers)
            seen.append(answer.status_code)
        assert seen == [403, 403, 403, 429, 429]


@using_up
async def test_fetches_for_a_page_are_bounded_over_its_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "SECONDS", 60.0)  # however busy this machine is
    options: Any = {"clock": HandClock(), "budgets": Budgets(prefills_per_minute=10)}
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
    async with receiving(answer=answer) as receiver, on_file(tmp_path, **options) as served:
        fields = [
            {
                "key": f"k{n}",
                "label": "K",
                "type": "text",
                "default_ref": f"http://127.0.0.1:{receiver.port}/{n}",
            }
            for n in range(4)
        ]
        case = await (await served.agent()).open("input", context={"form": {"fields": fields}})
        pages = [await case.visit() for _ in range(5)]
        assert {page.status_code for page in pages} == {200}
        assert len(receiver.requests) == 8  # two views of four; a third one's would not all fit
