"""Following a case: every event once and in order, whoever serves it and however often the line breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kit.patience import PATIENCE
from kit.running_service import HandClock, Served, events, serving, until
from kit.stores import SHARED, Database

from askfirst.service import api
from askfirst.service.api import event_stream

pytestmark = pytest.mark.anyio

FORM = {
    "form": {
        "steps": [
            {"title": f"Step {n}", "fields": [{"key": f"k{n}", "label": "K", "type": "text"}]}
            for n in range(1, 9)
        ]
    }
}


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_reconnect_to_another_process_loses_and_repeats_nothing(database: Database) -> None:
    """A case changes in both processes while its follower goes from one to the other after each event."""
    async with (
        database.checkpointer() as one,
        database.checkpointer() as other,
        serving(one) as first,
        serving(other) as second,
    ):
        agent = await first.agent()
        case = await agent.open("input", context=FORM)
        servers: list[Served] = [first, second]

        async def live() -> None:
            await case.visit()
            for step in range(1, 8):
                served = servers[step % 2]
                body = {"step": str(step), "intent": "next", "shown": [f"k{step}"], f"f.k{step}": "x"}
                url = f"{served.url}/review/{case.case_id}/respond?token={case.token}"
                assert (await served.http.post(url, data=body)).status_code == 200
            url = f"{second.url}/review/{case.case_id}/respond?token={case.token}"
            assert (await second.http.post(url, json={"action": "submit", "data": {}})).status_code == 200

        living = asyncio.create_task(live())
        seen: list[tuple[int, str]] = []
        after: int | None = None
        while not seen or seen[-1][1] != "review.completed":
            served = servers[len(seen) % 2]
            url = f"{served.url}/v1/reviews/{case.case_id}/events"
            stream = events(served.http, url, agent.headers, after)
            event = await asyncio.wait_for(anext(stream), PATIENCE)
            await stream.aclose()  # type: ignore[attr-defined]
            seen.append((event.id, event.event))
            after = event.id
        await living
        stored = [(seq, event) for seq, event, _ in await first.service.cases.events(case.case_id, 0)]
        assert seen == stored
        assert [event for _, event in seen] == [
            "review.opened",
            *["review.in_progress"] * 7,
            "review.completed",
        ]


async def test_a_follower_hears_of_another_process_without_asking_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/cases.db"
    async with serving(url) as first, serving(url) as second:
        agent = await first.agent()
        case = await agent.open()
        stream = events(second.http, f"{second.url}/v1/reviews/{case.case_id}/events", agent.headers)
        waiting = asyncio.create_task(anext(stream))
        followers = second.service.cases.followers
        await until(_async(lambda: followers.follows(case.case_id)))
        await case.say("reject")
        assert (await asyncio.wait_for(waiting, PATIENCE)).event == "review.completed"
        assert [event async for event in stream] == []
        assert not second.service.cases.followers.any


@pytest.mark.parametrize("known", ["0", "", "abc", "\xb2", "9" * 5000, "-1", "1.5"])
async def test_an_id_that_was_never_given_out_begins_anew(tmp_path: Path, known: str) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open()
        await case.say("approve")
        headers = {**case.agent.headers, "Last-Event-ID": known.encode("latin-1")}
        answer = await served.http.get(case.hitl["events_url"], headers=headers)  # type: ignore[arg-type]
        assert answer.status_code == 200
        assert answer.text.count("event: review.completed") == 1


async def test_a_stream_that_has_nothing_to_tell_stays_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.HEARTBEAT_SECONDS <= 30
    async with serving(f"sqlite:///{tmp_path}/cases.db", clock=HandClock()) as served:
        case = await (await served.agent()).open()
        stream = event_stream(served.service.cases, case.case_id, 0, heartbeat=0.01)
        assert await anext(stream) == b"retry: 3000\n\n"
        assert (await anext(stream)).startswith(b":")
        await case.say("approve")
        rest = [part async for part in stream if not part.startswith(b":")]
        assert len(rest) == 1
        assert b"event: review.completed" in rest[0]


async def test_a_follower_who_leaves_is_forgotten(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open()
        async with served.http.stream("GET", case.hitl["events_url"], headers=case.agent.headers) as stream:
            await anext(stream.aiter_lines())
            followers = served.service.cases.followers
            await until(_async(lambda: followers.any))
        await until(_async(lambda: not followers.any))


def _async(check: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def checked() -> bool:
        return check()

    return checked


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_revoked_key_hears_of_nothing_more(database: Database) -> None:
    """The stream was open before, and in another process than the one that revokes the key."""
    async with (
        database.checkpointer() as one,
        database.checkpointer() as other,
        serving(one) as first,
        serving(other) as second,
    ):
        agent = await first.agent()
        case = await agent.open()
        stream = events(first.http, case.hitl["events_url"], agent.headers)
        await case.visit()
        assert (await asyncio.wait_for(anext(stream), PATIENCE)).event == "review.opened"
        assert await second.service.keys.revoke(agent.key_id, by="test")
        assert (await case.say("approve")).status_code == 200
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(stream), PATIENCE)
