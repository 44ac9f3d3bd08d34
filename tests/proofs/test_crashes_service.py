"""Servers are killed before, during and after every write: nothing is lost, and nothing happens twice.

A client with retries plays the life of a case: it is opened, reminded of, visited, drafted, answered and called back.
The life is run once to learn the crash points of a server. Then it is run once for each point, with a server that is
killed there (SIGKILL) and another server that is started after it. On SQLite these are all points; on the database
servers, those around the commits of opening, answering and calling back.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from kit.callback_receivers import Receiver, receiving
from kit.own_databases import OwnDatabases
from kit.patience import PATIENCE
from kit.running_service import BROWSER, SECRET, events, fits, until
from kit.service_processes import Nursery, is_alive
from kit.stores import SERVERS, Fresh, approval, asked
from kit.throwaway_servers import free_port
from sqlalchemy import select

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.ids import case_id_of
from askfirst.protocol import Callback, HumanInputRequired, PollResponse, verify_callback
from askfirst.protocol.signatures import SIGNATURE_HEADER
from askfirst.service.audit import export, verify
from askfirst.service.callbacks import callback_secret
from askfirst.service.cases import Cases
from askfirst.service.keys import Keys
from askfirst.store import cases as case_store
from askfirst.store import deliveries
from askfirst.store.case_tables import callbacks
from askfirst.store.statement import Statement, Transaction

pytestmark = [
    pytest.mark.anyio,
    # A server that dies while it accepts a connection leaves the socket to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
AT_ONCE = 8
AT_COMMITS = (
    "during:create:1",
    "during:change:4",
    "after:change:4",
    "after:send:1",
    "during:callback_done:1",
)
FIELDS = [{"key": "name", "label": "Name", "type": "text"}, {"key": "note", "label": "Note", "type": "text"}]
T = TypeVar("T")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


@pytest.fixture
def databases(
    request: pytest.FixtureRequest, tmp_path: Path, fresh_databases: Fresh
) -> Iterator[OwnDatabases]:
    """Databases for one test. If a server cannot be reached, the test is skipped, or fails in CI."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params["store"] in SERVERS:
        fresh_databases.address(callspec.params["store"])
    with OwnDatabases(tmp_path) as own:
        yield own


class Life:
    """A case's life, which continues whenever the server dies."""

    def __init__(self, nursery: Nursery, url: str, log: Path, crash: str | None) -> None:
        self.url = url
        self.log = log
        self.port = free_port()
        self._nursery = nursery
        self._crash = crash
        self._pid = 0
        self.crashes = 0

    async def live(self) -> None:
        async with (
            checkpointer_from_url(self.url) as store,
            receiving() as receiver,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE) as http,
        ):
            key = await Keys(store.engine).issue("agent", by="test")
            self.key_id, self.headers = key.key_id, {"Authorization": f"Bearer {key.text}"}
            self.http = http
            self._start(self._crash)
            try:
                await self._live(receiver, store)
            finally:
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            self.called = list(receiver.requests)

    async def _live(self, receiver: Receiver, store: SqlCheckpointer) -> None:
        soon = datetime.now(UTC) + timedelta(milliseconds=100)
        body = {
            "type": "input",
            "prompt": "Who?",
            "context": {"form": {"fields": FIELDS}},
            "hitl_callback_url": f"http://127.0.0.1:{receiver.port}/hook",
            "reminder_at": soon.isoformat(),
        }
        headers = {**self.headers, "Idempotency-Key": "once"}
        opened = await self._insist(lambda: self.http.post("/v1/reviews", json=body, headers=headers))
        hitl = fits(HumanInputRequired, opened.json())["hitl"]
        self.case_id = hitl["case_id"]
        token = parse_qs(urlsplit(hitl["review_url"]).query)["token"][0]
        self.page = f"/review/{self.case_id}?token={token}"
        await self._reminded()
        await self._insist(lambda: self.http.get(self.page, headers=BROWSER))
        draft = {
            "step": "1",
            "intent": "draft",
            "shown": ["name", "note"],
            "f.name": "Ada",
            "f.note": "so far",
        }
        respond = f"/review/{self.case_id}/respond?token={token}"
        await self._insist(lambda: self.http.post(respond, data=draft))
        assert "so far" in (await self._insist(lambda: self.http.get(self.page, headers=BROWSER))).text
        assert not receiver.requests
        answer = {"action": "submit", "data": {"name": "Ada"}}
        self.answers = [await self._insist(lambda: self.http.post(respond, json=answer), (200, 409))]
        async with asyncio.timeout(PATIENCE):
            while await store.engine.read(_still_due) or not self._has_come_to_its_end:
                self._revive()
                await asyncio.sleep(0.02)

    @property
    def _has_come_to_its_end(self) -> bool:
        """Whether the server has died where it should, or else has noted its last point."""
        return self.crashes > 0 if self._crash else "after:callback_done:" in self.log.read_text()

    async def _reminded(self) -> None:
        while True:
            polled = await self._insist(lambda: self.http.get(self._path("status"), headers=self.headers))
            if "reminder_sent_at" in fits(PollResponse, polled.json()):
                return
            await asyncio.sleep(0.15)

    def _path(self, what: str) -> str:
        return f"/v1/reviews/{self.case_id}/{what}"

    async def _insist(
        self, act: Callable[[], Awaitable[httpx2.Response]], good: tuple[int, ...] = (200, 202)
    ) -> httpx2.Response:
        """Retry until there is an answer, starting the server again if it has died."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    answer = await act()
                except httpx2.TransportError:
                    self._revive()
                    await asyncio.sleep(0.02)
                    continue
                assert answer.status_code in good, answer.text
                return answer

    def _start(self, crash: str | None) -> None:
        self._pid = self._nursery.start(self.url, self.port, crash=crash, log=str(self.log))

    def _revive(self) -> None:
        if not is_alive(self._pid):
            self.crashes += 1
            self._start(None)

    async def check(self) -> None:
        """Check the stored state and the sent messages at the end of a life."""
        async with checkpointer_from_url(self.url) as store:
            cases = Cases(store)
            case = await cases.get(self.case_id)
            assert await cases.engine.read(case_store.open_count) == 0
            told = [event for _, event, _ in await cases.events(self.case_id, 0)]
            assert (await verify(store.engine)).is_whole
            rows = [json.loads(line) async for line in export(store.engine)]
        assert case.status == "completed"
        assert case.result == {"action": "submit", "data": {"name": "Ada"}}
        assert case.draft is None
        assert told == ["review.reminder", "review.opened", "review.in_progress", "review.completed"]
        noted = [row["act"] for row in rows if row["subject"] == self.case_id]
        acts = [act for act in noted if act != "case.delivered"]  # one row for each link that was made
        assert acts == ["case.created", "case.reminded", "case.opened", "case.answered"]
        assert len([row for row in rows if row["act"] == "case.created"]) == 1
        ids = {headers["webhook-id"] for _, headers, _ in self.called}
        assert len(ids) == 1
        for _, headers, raw in self.called:
            verify_callback(raw, headers[SIGNATURE_HEADER.lower()], callback_secret(SECRET, self.key_id))
            assert fits(Callback, json.loads(raw))["event"] == "review.completed"


def _still_due() -> Transaction[bool]:
    """Whether a callback is not stored as made. A server that was killed while it stored that may have made it."""
    rows = yield Statement(select(callbacks.c.due_at)), {}
    return [due_at for (due_at,) in rows] != [None]


async def killed(nursery: Nursery, url: str, log: Path, point: str) -> None:
    """Run a life with a server that dies at this point."""
    life = Life(nursery, url, log, point)
    try:
        await life.live()
    except TimeoutError:
        raise AssertionError(f"{point} was not reached: {life.log.read_text().split()}") from None
    await life.check()
    assert life.crashes == 1, point
    # A server that dies between a callback and its record calls again, and so does one that is slower than its
    # claim, which is short here. `check` compares ids to see that it is the same callback.
    assert life.called, point


async def test_a_server_may_die_at_any_point(
    nursery: Nursery, databases: OwnDatabases, tmp_path: Path
) -> None:
    whole = Life(nursery, await databases.new("sqlite"), tmp_path / "whole.log", None)
    await whole.live()
    await whole.check()
    assert whole.called
    # A callback that is slower than its claim is made again. That would happen by chance, so the claim is long here.
    again = re.compile(r"\w+:(take|send|callback_done):(?!1$)")
    points = [point for point in whole.log.read_text().split() if not again.match(point)]
    for what in ("create:1", "change:1", "change:2", "change:3", "change:4", "callback_done:1"):
        assert {f"{moment}:{what}" for moment in ("before", "during", "after")} <= set(points)
    assert {"after:take:1", "after:send:1"} <= set(points)
    assert set(AT_COMMITS) <= set(points)
    await _each_killed(nursery, databases, tmp_path, "sqlite", list(dict.fromkeys(points)))


@pytest.mark.parametrize("store", SERVERS)
async def test_a_server_may_die_at_its_commits(
    nursery: Nursery, databases: OwnDatabases, tmp_path: Path, store: str
) -> None:
    await _each_killed(nursery, databases, tmp_path, store, AT_COMMITS)


async def _each_killed(
    nursery: Nursery, databases: OwnDatabases, folder: Path, store: str, points: Sequence[str]
) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, point: str) -> None:
        async with limit:
            await killed(nursery, await databases.new(store), folder / f"{number}.log", point)

    async with asyncio.TaskGroup() as group:
        for number, point in enumerate(points):
            group.create_task(one(number, point))


# `on_case` is called once for an agent's request, or once more if the server dies during the call.
TOLD = {
    "after:create:1": (1,),
    "after:untold:1": (1,),
    "before:told:1": (2,),
    "during:told:1": (1, 2),
    "after:told:1": (1,),
}


@pytest.mark.parametrize(
    ("store", "point"),
    [
        *(("sqlite", point) for point in TOLD),
        # On the database servers: the points at which something could be lost, and those at which it is repeated.
        *((store, point) for store in SERVERS for point in ("after:create:1", "before:told:1")),
    ],
)
async def test_a_host_hears_of_a_request_whenever_its_server_dies(
    nursery: Nursery, databases: OwnDatabases, tmp_path: Path, store: str, point: str
) -> None:
    url, port, told = await databases.new(store), free_port(), tmp_path / "told"
    told.touch()
    case_id = case_id_of("t", "call-1", 1)
    async with checkpointer_from_url(url) as opened:
        cases = Cases(opened)
        await asked(opened, "t", approval())
        first = nursery.start(url, port, crash=point, told=str(told))

        async def is_dead() -> bool:
            return not is_alive(first)

        await until(is_dead)
        pid = nursery.start(url, port, told=str(told))

        async def is_told() -> bool:
            shown = await cases.engine.read(partial(case_store.shown, case_id))
            return bool(told.read_text()) and shown is not None and shown[0].tell_at is None

        try:
            await until(is_told)
        finally:
            os.kill(pid, signal.SIGKILL)
        assert told.read_text().split() in [[case_id] * times for times in TOLD[point]]


# Deliveries: each message is sent once, or once more if the server dies between sending and storing.
MESSAGES = {
    "after:create:1": (1, 1),
    "before:plan:1": (1, 1),
    "after:plan:1": (1, 1),
    "after:message:1": (1, 1),
    "before:sent:1": (2, 1),
    "after:sent:1": (1, 1),
    "after:message:2": (1, 1),
    "before:updated:1": (1, 2),
    "after:updated:1": (1, 1),
}


@pytest.mark.parametrize(
    ("store", "point"),
    [
        *(("sqlite", point) for point in MESSAGES),
        *((store, point) for store in SERVERS for point in ("after:plan:1", "before:sent:1")),
    ],
)
async def test_people_are_told_whenever_a_server_dies(
    nursery: Nursery, databases: OwnDatabases, tmp_path: Path, store: str, point: str
) -> None:
    url, ports, board = await databases.new(store), [free_port(), free_port()], tmp_path / "board"
    board.touch()
    sent, ended = MESSAGES[point]
    async with checkpointer_from_url(url) as opened:
        await asked(opened, "t", approval())
        pids = [nursery.start(url, ports[0], crash=point, board=str(board))]

        async def is_told() -> bool:
            """Wait for the first message; start another server as soon as the first one is dead."""
            if len(pids) == 1 and not is_alive(pids[0]):
                pids.append(nursery.start(url, ports[1], board=str(board)))
            rows = await opened.engine.read(partial(deliveries.page, 10))
            return [row.state for row in rows] == ["sent"]

        async def is_over() -> bool:
            await is_told()
            rows = await opened.engine.read(partial(deliveries.page, 10))
            return len(pids) == 2 and [row.state for row in rows] == ["done"]

        try:
            await until(is_told)
            await opened.settle("t", "call-1", {"decision": "deny"}, by="ann", via="cli")
            await until(is_over)
        finally:
            for pid in filter(is_alive, pids):
                os.kill(pid, signal.SIGKILL)
    lines = board.read_text().splitlines()
    links = [line for line in lines if line.startswith("sent ")]
    assert len(links) == sent
    assert len({urlsplit(line).query for line in links}) == 1  # a repeated message has the same link
    assert lines.count("ended Rejected by ann (unverified).") == ended


@pytest.mark.parametrize("store", ["sqlite", *SERVERS])
async def test_two_servers_send_each_message_once(
    nursery: Nursery, databases: OwnDatabases, tmp_path: Path, store: str
) -> None:
    url, board = await databases.new(store), tmp_path / "board"
    board.touch()
    async with checkpointer_from_url(url) as opened:
        pids = [nursery.start(url, free_port(), board=str(board)) for _ in range(2)]
        try:
            for number in range(30):
                await asked(opened, f"t{number}", approval())

            async def are_told() -> bool:
                rows = await opened.engine.read(partial(deliveries.page, 100))
                return [row.state for row in rows] == ["sent"] * 30

            await until(are_told)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
    links = board.read_text().splitlines()
    assert len(links) == len({urlsplit(link).path for link in links}) == 30


async def test_events_go_on_from_one_process_to_another(nursery: Nursery, tmp_path: Path) -> None:
    """Two processes serve one database. The follower's process is killed, and the follower continues with the other
    one."""
    url, ports = f"sqlite:///{tmp_path}/cases.db", [free_port(), free_port()]
    async with checkpointer_from_url(url) as store:
        key = await Keys(store.engine).issue("agent", by="test")
    headers = {"Authorization": f"Bearer {key.text}"}
    pids = [nursery.start(url, port) for port in ports]
    try:
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            here, there = [f"http://127.0.0.1:{port}" for port in ports]
            for base in (here, there):
                await _up(http, base)
            body = {"type": "input", "prompt": "Who?", "context": {"form": {"fields": FIELDS}}}
            hitl = (await http.post(f"{here}/v1/reviews", json=body, headers=headers)).json()["hitl"]
            path = f"/v1/reviews/{hitl['case_id']}/events"
            query = urlsplit(hitl["review_url"]).query
            seen: list[tuple[int, str]] = []
            stream = events(http, here + path, headers)
            for number in range(3):  # events of the other process arrive here
                draft = {"step": "1", "intent": "draft", "shown": ["name", "note"], "f.name": f"Ada {number}"}
                sent = await http.post(f"{there}/review/{hitl['case_id']}/respond?{query}", data=draft)
                assert sent.status_code == 200
                event = await asyncio.wait_for(anext(stream), PATIENCE)
                seen.append((event.id, event.event))
            os.kill(pids[0], signal.SIGKILL)
            with pytest.raises((httpx2.TransportError, StopAsyncIteration)):
                await anext(stream)
            answer = {"action": "submit", "data": {"name": "Ada"}}
            await http.post(f"{there}/review/{hitl['case_id']}/respond?{query}", json=answer)
            rest = events(http, there + path, headers, seen[-1][0])
            seen += [(event.id, event.event) async for event in rest]
            async with checkpointer_from_url(url) as store:
                stored = await Cases(store).events(hitl["case_id"], 0)
            assert seen == [(seq, name) for seq, name, _ in stored]
            assert [name for _, name in seen] == ["review.in_progress"] * 3 + ["review.completed"]
    finally:
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


async def _up(http: httpx2.AsyncClient, base: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await http.get(f"{base}/readyz")
            except httpx2.TransportError:
                await asyncio.sleep(0.05)
