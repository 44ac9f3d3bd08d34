"""The client without await: in scripts, in threads, and stopped with Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import httpx2
import pytest
from kit.patience import PATIENCE
from kit.running_service import Agent as Caller
from kit.running_service import Served, serving
from kit.warm_python import warm_python

from askfirst.client import sync
from askfirst.client.outcome import ReviewOutcome
from askfirst.client.sync import HitlClientSync
from askfirst.delivery.base import Notice

QUICK: dict[str, Any] = {"poll_interval": 0.05, "min_poll_interval": 0.05}


@dataclass
class Elsewhere:
    """A service that runs in another thread, and what can be done with it from here."""

    served: Served
    caller: Caller
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"{self.served.url}/v1/reviews"

    @property
    def headers(self) -> dict[str, str]:
        return self.caller.headers

    def answer(self, review_url: str, action: str = "approve") -> None:
        """Be the person."""
        page, _, query = review_url.partition("?")
        httpx2.post(f"{page}/respond?{query}", json={"action": action}, timeout=PATIENCE).raise_for_status()


@contextmanager
def service() -> Iterator[Elsewhere]:
    ready: Queue[Any] = Queue()

    async def main() -> None:
        async with serving("sqlite://") as served:
            done = asyncio.Event()
            ready.put((Elsewhere(served, await served.agent(), asyncio.get_running_loop()), done))
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    elsewhere, done = ready.get(timeout=PATIENCE)
    try:
        yield elsewhere
    finally:
        elsewhere.loop.call_soon_threadsafe(done.set)
        thread.join()


def asked(prompt: str = "Sure?") -> dict[str, str]:
    return {"type": "approval", "prompt": prompt}


def test_a_script_gets_its_outcome() -> None:
    with service() as there:
        told: list[Notice] = []

        def deliver(notice: Notice) -> None:  # not async, and slow: it is called in a thread
            told.append(notice)
            if notice.review_url is not None:
                there.answer(notice.review_url)

        with HitlClientSync(deliver=deliver, **QUICK) as client:
            outcome = client.request("POST", there.url, json=asked(), headers=there.headers)
            plain = client.request("GET", f"{there.served.url}/healthz")
            found = client.discover(there.served.url)
            opened = httpx2.post(there.url, json=asked("Own HTTP?"), headers=there.headers, timeout=PATIENCE)
            handled = client.handle(opened)
    assert isinstance(outcome, ReviewOutcome)
    assert outcome.action == "approve"
    assert told[0].kind == "review"
    assert isinstance(plain, httpx2.Response)
    assert plain.status_code == 200
    assert found.hitl_protocol.spec_version == "0.8"
    assert isinstance(handled, ReviewOutcome)


def test_one_request_and_no_more() -> None:
    with service() as there:
        response = sync.request("GET", f"{there.served.url}/healthz", deliver=print)
    assert isinstance(response, httpx2.Response)


def test_several_threads_share_a_client() -> None:
    with service() as there:

        async def deliver(notice: Notice) -> None:
            if notice.review_url is not None:
                await asyncio.to_thread(there.answer, notice.review_url)

        with HitlClientSync(deliver=[deliver], **QUICK) as client, ThreadPoolExecutor(8) as threads:

            def ask(number: int) -> Any:
                return client.request("POST", there.url, json=asked(str(number)), headers=there.headers)

            outcomes = list(threads.map(ask, range(8)))
    assert len({outcome.case_id for outcome in outcomes}) == 8


def test_errors_come_out_as_they_are() -> None:
    with HitlClientSync(deliver=print) as client:
        with pytest.raises(httpx2.ConnectError):
            client.request("GET", "http://127.0.0.1:1/")
        with pytest.raises(httpx2.UnsupportedProtocol):
            client.request("GET", "nowhere")


def test_what_cannot_be_opened_says_so() -> None:
    with pytest.raises(TypeError, match="colour"), HitlClientSync(deliver=print, colour="red"):
        pass
    with pytest.raises(Exception, match="no store is known"), HitlClientSync(deliver=print, store="x://y"):
        pass


def test_it_is_used_while_it_is_open() -> None:
    client = HitlClientSync(deliver=print)
    with pytest.raises(RuntimeError, match="not open"):
        client.request("GET", "http://127.0.0.1:1/")
    with client:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        client.request("GET", "http://127.0.0.1:1/")


@pytest.mark.anyio
async def test_it_says_so_where_an_event_loop_would_stand_still() -> None:
    with pytest.raises(RuntimeError, match="use HitlClient and await it"):
        HitlClientSync(deliver=print).__enter__()
    # In a thread of its own it is fine, whatever the loop does.
    opened = await asyncio.to_thread(HitlClientSync(deliver=print).__enter__)
    with pytest.raises(RuntimeError, match="use HitlClient and await it"):
        opened.request("GET", "http://127.0.0.1:1/")
    await asyncio.to_thread(opened.__exit__)


SCRIPT = """
import sys
from askfirst.client.sync import HitlClientSync

url, key, store = sys.argv[1:]
with HitlClientSync(deliver=lambda notice: print(notice.kind, notice.case_id, flush=True), store=store,
                    poll_interval=0.05, min_poll_interval=0.05) as client:
    try:
        outcome = client.request("POST", url, key="the key", json={"type": "approval", "prompt": "Sure?"},
                                 headers={"Authorization": key})
    except KeyboardInterrupt:
        print("interrupted")
        sys.exit(130)
    print(outcome.action)
"""


def until_noted(path: Path) -> None:
    """Until the store knows that the person was told: whoever was not, is not told how it ended either."""
    with closing(sqlite3.connect(path)) as connection:
        for _ in range(3000):
            if connection.execute(SENT).fetchone() is not None:
                return
            time.sleep(0.01)
    raise AssertionError("nothing was noted")


SENT = "SELECT 1 FROM askfirst_checkpoints WHERE body LIKE '%\"sent\":[{%'"


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_ctrl_c_stops_a_script_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with service() as there:
        store = f"sqlite:///{tmp_path / 'waits.db'}"
        command = [*warm_python(), "-c", SCRIPT, there.url, there.headers["Authorization"], store]

        def run() -> subprocess.Popen[str]:
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603

        first = run()
        assert first.stdout is not None
        kind, case_id = first.stdout.readline().split()
        assert kind == "review"
        until_noted(tmp_path / "waits.db")
        first.send_signal(signal.SIGINT)
        said, _ = first.communicate(timeout=PATIENCE)
        assert (said, first.returncode) == ("interrupted\n", 130)

        httpx2.post(
            f"{there.url}/{case_id}/cancel", headers=there.headers, timeout=PATIENCE
        ).raise_for_status()
        second = run()
        said, _ = second.communicate(timeout=PATIENCE)
    # The same case, and no second link: only how it ended.
    assert sorted(said.splitlines()) == ["cancelled", f"cancelled {case_id}"]
