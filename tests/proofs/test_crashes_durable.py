"""Waits that outlive their processes: clients are killed with SIGKILL at every critical point, on each shared
store."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.lives_agents import entries
from kit.lives_clients import LEASE_SECONDS, wait, warm_up, work
from kit.patience import PATIENCE
from kit.running_service import SECRET, listening, serving
from kit.stores import SHARED, Database

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.client.client import HitlClient
from askfirst.delivery.base import Notice
from askfirst.errors import DeliveryError
from askfirst.hitl.testing import RaceOutcome, RaceTrack
from askfirst.service.app import create_app

pytestmark = pytest.mark.anyio

WARM_UP = f"{warm_up.__module__}:{warm_up.__name__}"
WAIT = f"{wait.__module__}:{wait.__name__}"
WORK = f"{work.__module__}:{work.__name__}"


@dataclass
class Site:
    """Our service, with a count of its requests; and people who answer every link they get."""

    url: str
    headers: dict[str, str]
    folder: Path
    database: Database
    asked: Counter[str]
    """How often each case was asked for, by its prompt."""
    answered: set[str] = field(default_factory=set)

    def job(self, key: str, die: str | None, idempotency_key: str | None = None) -> dict[str, Any]:
        return {
            "key": key,
            "die": die,
            "idempotency_key": idempotency_key,
            "url": f"{self.url}/v1/reviews",
            "headers": self.headers,
            "links": str(self.folder / f"{key}.links"),
            "kind": self.database.kind,
            "address": self.database.address,
        }

    def links(self, key: str) -> list[str]:
        return [each["case"] for each in self._lines(key) if "link" in each]

    def _lines(self, key: str) -> list[dict[str, Any]]:
        return entries(self.folder / f"{key}.links")

    async def answer_all(self, keys: list[str]) -> None:
        """Play the people until cancelled. They answer slowly, so that it is stored by then that they have the
        link."""
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            while True:
                for lines in map(self._lines, keys):
                    noted = {each["noted"] for each in lines if "noted" in each} - self.answered
                    for each in lines:
                        if each.get("case") in noted:
                            self.answered.add(each["case"])
                            page, _, query = each["link"].partition("?")
                            answer = await http.post(f"{page}/respond?{query}", json={"action": "approve"})
                            assert answer.is_success, answer.text
                await asyncio.sleep(0.02)

    async def race(
        self, track: RaceTrack, target: str, jobs: list[dict[str, Any]], people_for: list[str]
    ) -> list[RaceOutcome]:
        """Run lives at once, while people answer the links of some of them."""
        await track.race(WARM_UP, [], warm_up=self.job("warm-up", None))
        people = asyncio.create_task(self.answer_all(people_for))
        racing = asyncio.create_task(track.race(target, jobs, timeout=PATIENCE))
        await asyncio.wait({people, racing}, return_when=asyncio.FIRST_COMPLETED)
        people.cancel()
        await asyncio.wait({people})
        if not racing.done():
            racing.cancel()
            await asyncio.wait({racing})
            people.result()
        return racing.result()


class _Counting:
    """The service, wrapped so that requests are counted."""

    def __init__(self, app: Any, asked: Counter[str]) -> None:
        self.app = app
        self.asked = asked

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("POST", "/v1/reviews"):
            return await self.app(scope, receive, send)
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.asked[json.loads(body)["prompt"]] += 1

        async def again() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        return await self.app(scope, again, send)


@asynccontextmanager
async def site(database: Database, folder: Path) -> AsyncGenerator[Site]:
    asked: Counter[str] = Counter()

    def make(url: str) -> _Counting:
        return _Counting(create_app("sqlite://", base_url=url, secret=SECRET, development=True), asked)

    async with listening(make) as (url, counting):
        issued = await counting.app.state.service.keys.issue("agent", by="test")
        yield Site(url, {"Authorization": f"Bearer {issued.text}"}, folder, database, asked)


DEATHS = ("about to send", "sent", "stored", "delivered", "answered", "ended")


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_another_process_goes_on(database: Database, race_track: RaceTrack, tmp_path: Path) -> None:
    async with site(database, tmp_path) as it:
        jobs = [it.job(die, die) for die in DEATHS]
        jobs.append(it.job("sent, repeatable", "sent", "an idempotency key"))
        # In some cases people have to answer before the crash, so they answer at once; else they answer after it.
        first = await it.race(race_track, WAIT, jobs, ["answered", "ended"])
        assert [life.signal for life in first] == [signal.SIGKILL] * len(jobs)
        keys = [job["key"] for job in jobs]
        lives = await it.race(race_track, WAIT, [{**job, "die": None} for job in jobs], keys)
        assert all(life.won for life in lives), lives
        ends = {key: life.value for key, life in zip(keys, lives, strict=True)}

        # Whether these requests took effect is unknown, so they are not sent again.
        assert ends.pop("about to send") == ends.pop("sent") == {"error": "RequestInDoubt"}
        assert (it.asked["about to send"], it.asked["sent"]) == (0, 1)
        assert it.links("about to send") == it.links("sent") == []
        # This request has an idempotency key, so sending it twice does no harm.
        assert it.asked.pop("sent, repeatable") == 2
        # Every other request was sent once, and every person was sent one link, to the case that was decided.
        for key, end in ends.items():
            assert (end["status"], end["action"]) == ("completed", "approve"), key
            assert it.asked.get(key, 1) == 1, key
            assert it.links(key) == [end["case"]], key
        # One more life: the outcome stays the same, and nothing is sent.
        again = await it.race(race_track, WAIT, [it.job(key, None) for key in ("delivered", "ended")], [])
        assert [life.value for life in again] == [ends["delivered"], ends["ended"]]
        assert (it.asked["delivered"], it.asked["ended"]) == (1, 1)
        assert await _secrets_left(database, it) == []


async def _secrets_left(database: Database, it: Site) -> list[str]:
    """The links of ended cases that the store still has."""
    async with database.checkpointer() as store:
        states = await store.list_checkpoints("askfirst.client.state", limit=1000)
    kept = json.dumps([each.body for each in states])
    assert kept.count("poll_url") >= 3
    return [name for name in ("token=", "submit_token", "/review/") if name in kept]


TOOL_DEATHS = (
    "about to send",
    "sent",
    "stored",
    "delivered",
    "commit step",  # the run is suspended, and its lease is released
    "answered",
    "ended",
    "read",
    "commit before:effect.ended",
    "commit effect.ended",
)


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_another_process_goes_on_with_an_agents_thread(
    database: Database, race_track: RaceTrack, tmp_path: Path
) -> None:
    async with site(database, tmp_path) as it:
        jobs = [it.job(f"tool {die}".replace(":", "-"), die) for die in TOOL_DEATHS]
        keys = [job["key"] for job in jobs]
        first = await it.race(race_track, WORK, jobs, keys)
        assert [life.signal for life in first] == [signal.SIGKILL] * len(jobs), first
        lives = await it.race(race_track, WORK, [{**job, "die": None} for job in jobs], keys)
        assert all(life.won for life in lives), lives
        ends = {key: life.value["results"] for key, life in zip(keys, lives, strict=True)}
        for key in ("tool about to send", "tool sent"):
            ((text, is_error),) = ends.pop(key)
            assert is_error
            assert "took effect is unknown" in text
            assert it.links(key) == []
        for key, results in ends.items():
            ((text, is_error),) = results
            assert "A person decided: approve." in text, key
            assert not is_error, key
            assert (it.asked[key], len(it.links(key))) == (1, 1), key


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_life_dies_at_the_same_commit_however_busy_the_machine_is(
    race_track: RaceTrack, database: Database, tmp_path: Path
) -> None:
    """A life that renewed its lease on a busy machine would die at that extra commit, with nothing sent and no review
    to resume."""
    async with site(database, tmp_path) as it:
        job = it.job("slow", "commit step")
        slow = {**job, "stands_still": LEASE_SECONDS / 2}
        (first,) = await it.race(race_track, WORK, [slow], [])
        assert first.signal == signal.SIGKILL
        assert (it.asked["slow"], len(it.links("slow"))) == (1, 1)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_an_answer_that_asks_nobody_is_not_asked_for_twice(
    race_track: RaceTrack, database: Database, tmp_path: Path
) -> None:
    """A tool's request was answered with 401, and the process dies before that answer is stored."""
    async with site(database, tmp_path) as it:
        job = {**it.job("plain", "plain answer"), "headers": {}}
        (first,) = await it.race(race_track, WORK, [job], [])
        assert first.signal == signal.SIGKILL
        # No review is pending, so the host resumes the thread, as after any crash.
        (life,) = await it.race(race_track, WORK, [{**job, "die": None, "resume": True}], [])
        ((text, is_error),) = life.value["results"]
    assert is_error
    assert "took effect is unknown" in text
    assert it.asked["plain"] == 1


@pytest.mark.parametrize("database", ["memory"], indirect=True)
async def test_nobody_is_asked_about_what_is_over(checkpointer: SqlCheckpointer) -> None:
    """The first process could not reach the person. When the second process runs, the case has ended."""
    told: list[str] = []
    tried: asyncio.Queue[str] = asyncio.Queue()

    async def fail(notice: Notice) -> None:
        tried.put_nowait(notice.case_id)
        raise DeliveryError("pigeon", "it is raining")

    async def note(notice: Notice) -> None:
        told.append(notice.kind)

    async with serving("sqlite://") as served:
        caller = await served.agent()

        @asynccontextmanager
        async def client(deliver: Any) -> AsyncGenerator[HitlClient]:
            async with (
                httpx2.AsyncClient(headers=caller.headers) as http,
                HitlClient(http, deliver=deliver, store=checkpointer) as opened,
            ):
                yield opened

        def request(by: HitlClient) -> Any:
            asked = {"type": "approval", "prompt": "Sure?"}
            return by.request("POST", f"{served.url}/v1/reviews", key="key", json=asked)

        async with client(fail) as first:
            asking = asyncio.create_task(request(first))
            case_id = await tried.get()
            asking.cancel()
            await asyncio.wait({asking})
        assert (await caller.post(f"/v1/reviews/{case_id}/cancel")).is_success
        async with client(note) as second:
            outcome = await request(second)
    assert (outcome.status, outcome.case_id) == ("cancelled", case_id)
    assert "review" not in told
