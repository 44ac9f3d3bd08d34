"""Four workers and two services on one PostgreSQL database: threads are answered at random while processes are
killed.

``CROWD_THREADS=2000`` in the environment makes the crowd larger; a normal test run has no time for that.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

import asyncpg
import httpx2
import pytest
from kit.cli_rig import CLEAN
from kit.crowd_workers_app import EFFECTS, agent_of
from kit.own_databases import OwnDatabases
from kit.patience import PATIENCE
from kit.running_service import SECRET
from kit.throwaway_servers import free_port

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import CaseNotFound
from askfirst.service.case import review_url
from askfirst.service.cases import Cases
from askfirst.store.requests import open_page
from askfirst.store.rows import RequestRow
from askfirst.workers import Continuations

WORKERS, SERVICES = 4, 2
LEASE = "5"
THREADS = int(os.environ.get("CROWD_THREADS", "0"))
SUITE = {"askfirst": 40, "procrastinate": 120}

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]


class Processes:
    """The worker and service processes, which are killed and started again."""

    def __init__(self, folder: Path, url: str, engine: str) -> None:
        self.ports = [free_port() for _ in range(SERVICES)]
        self._folder = folder
        self._engine = engine
        self._environment = {
            **CLEAN,
            "ASKFIRST_DATABASE_URL": url,
            "ASKFIRST_SECRET": SECRET,
            EFFECTS: str(folder / "effects"),
            "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self.services: list[subprocess.Popen[bytes]] = []
        self.killed = 0

    def __enter__(self) -> Self:
        self.workers = [self._worker() for _ in range(WORKERS)]
        self.services = [self._service(port) for port in self.ports]
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, *self.services):
            process.kill()
            process.wait()

    def kill_a_worker(self) -> None:
        """Kill a worker with SIGKILL, and start another in its place."""
        place = random.randrange(WORKERS)
        assert self.workers[place].poll() is None, self.log()
        self.workers[place].kill()
        self.workers[place].wait()
        self.workers[place] = self._worker()
        self.killed += 1

    def restart_services(self) -> None:
        """End both services with SIGTERM, and start them again."""
        for process in self.services:
            process.send_signal(signal.SIGTERM)
        for process in self.services:
            process.wait(PATIENCE)
        self.services = [self._service(port) for port in self.ports]

    def stop_workers(self) -> list[int]:
        """End all workers with SIGTERM; returns how they ended."""
        for process in self.workers:
            process.send_signal(signal.SIGTERM)
        return [process.wait(PATIENCE) for process in self.workers]

    def log(self) -> str:
        return (self._folder / "log").read_text()[-4000:]

    def _worker(self) -> subprocess.Popen[bytes]:
        return self._start(
            "worker", "kit.crowd_workers_app:resumers", "--engine", self._engine, "--lease", LEASE
        )

    def _service(self, port: int) -> subprocess.Popen[bytes]:
        return self._start("serve", "--port", str(port), "--development")

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "askfirst.cli", *arguments],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
            )


class Reviewer:
    """A person who answers what is open through the services, over HTTP, one after another at random."""

    def __init__(self, store: SqlCheckpointer, ports: Sequence[int], effects: Path) -> None:
        self._store, self._cases, self._effects = store, Cases(store), effects
        self._bases = [f"http://127.0.0.1:{port}" for port in ports]
        self.answered: Counter[str] = Counter()

    def paid(self) -> Counter[str]:
        return Counter(self._effects.read_text().split()) if self._effects.exists() else Counter()

    async def answer_some(self, http: httpx2.AsyncClient, approvals: int) -> None:
        """Answer this many open approvals and calls in doubt, in random order."""
        rows = await self._store.engine.read(partial(open_page, 5000, (0, "", "")))
        random.shuffle(rows)
        asked = [row for row in rows if row.kind == "approve"][:approvals]
        left = iter([row for row in rows if row.kind != "approve"] + asked)

        async def one_after_another() -> None:
            for row in left:
                await self._answer(http, row)

        await asyncio.gather(*[one_after_another() for _ in range(6)])

    async def _answer(self, http: httpx2.AsyncClient, row: RequestRow) -> None:
        """Approve a call; for a call in doubt, choose by the recorded effects whether it is retried or skipped."""
        action = "approve" if row.kind == "approve" else "skip" if row.thread_id in self.paid() else "retry"
        try:
            case = await self._cases.case_for(row)
            token = await self._cases.issue(case.case_id, by="test")
        except CaseNotFound:  # somebody else has just settled it
            return
        async with asyncio.timeout(PATIENCE):
            while True:
                page, _, query = review_url(random.choice(self._bases), case.case_id, token).partition("?")
                try:
                    said = await http.post(f"{page}/respond?{query}", json={"action": action, "data": {}})
                    if said.status_code < 500:
                        break
                except httpx2.TransportError:  # the service is being restarted
                    pass
                await asyncio.sleep(0.1)
        assert said.status_code in (200, 409), said.text
        self.answered[row.kind] += said.status_code == 200


async def _paused(store: SqlCheckpointer, count: int) -> list[str]:
    """Threads that wait for a person."""
    names = [f"thread-{number}" for number in range(count)]
    left = iter(names)

    async def pause() -> None:
        for name in left:
            result = await agent_of(name, store, 0).prompt("Pay.")
            assert result.status == "paused"

    await asyncio.gather(*[pause() for _ in range(8)])
    return names


async def _cut_connections(url: str) -> None:
    """End all connections to the database except this one, as a restarting server does."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()


async def _work_through(
    store: SqlCheckpointer, url: str, processes: Processes, reviewer: Reviewer, names: Sequence[str]
) -> None:
    """Answer, kill and restart until every thread has ended.

    A process is killed only after a thread was resumed since the last kill, however long that takes. On a busy
    machine, workers that die every few seconds would never begin.
    """
    known, left, rounds = Continuations(store), set(names), 0
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        while left:
            before, approvals = (len(left), reviewer.paid().total()), len(names) // 6
            async with asyncio.timeout(PATIENCE):
                while left and (len(left), reviewer.paid().total()) == before:
                    await reviewer.answer_some(http, approvals)
                    approvals = 0
                    left &= {each.thread_id for each in await known.list(len(names))} | await _open(
                        store, left
                    )
                    await asyncio.sleep(0.1)
            rounds += 1
            if rounds == 2:
                processes.restart_services()
            elif rounds == 4:
                await _cut_connections(url)
            elif left:
                processes.kill_a_worker()
    assert rounds > 4


async def _open(store: SqlCheckpointer, names: set[str]) -> set[str]:
    """The threads whose runs have not ended."""
    threads = {name: await store.load(name) for name in names}
    return {
        name
        for name, thread in threads.items()
        if thread is None or thread.run is None or thread.run.status != "completed"
    }


@pytest.mark.parametrize("engine", ["askfirst", "procrastinate"])
async def test_every_thread_ends_and_every_effect_happens_once(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count, effects = THREADS or SUITE[engine], tmp_path / "effects"
    with OwnDatabases(tmp_path) as own:
        url = await own.new("postgres")
        async with checkpointer_from_url(url) as store:
            names = await _paused(store, count)
            with Processes(tmp_path, url, engine) as processes:
                reviewer = Reviewer(store, processes.ports, effects)
                began = time.monotonic()
                await _work_through(store, url, processes, reviewer, names)
                took = time.monotonic() - began
                ends = processes.stop_workers()
                assert set(ends) <= {0, -signal.SIGTERM}, (
                    processes.log()
                )  # by the signal if the worker had just begun
                assert 0 in ends
            paid = reviewer.paid()
            assert {name: times for name, times in paid.items() if times != 1} == {}
            assert set(paid) == set(names)
            assert await _open(store, set(names)) == set()
            stuck = [each for each in await Continuations(store).list(count) if each.state != "done"]
            assert stuck == []
    said = (
        f"{engine}: {count} threads, {WORKERS} workers, {SERVICES} services; {processes.killed} workers killed, "
        f"services restarted once, all connections cut once; {reviewer.answered['approve']} approved, "
        f"{reviewer.answered['escalate']} in doubt; 0 lost, 0 doubled; {took:.0f} s, {count / took:.1f} a second"
    )
    with capsys.disabled():
        print(f"\n{said}")  # noqa: T201
