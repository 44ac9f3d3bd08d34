"""Three walks through the package with a profile hook: which modules (rooms) they enter, and how often they re-enter
one."""

from __future__ import annotations

import asyncio
import html
import re
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2

from askfirst import Agent, AgentSpec, run_agent, run_agent_resume, tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.client import HitlClient
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.service.app import create_app
from askfirst.service.embedding import review_link

ROOT = Path(__file__).resolve().parent.parent
CROSS_CUTTING = (
    "agent.emitter",
    "tracing",
    "clock",
    "ids",
    "digests",
    "concurrency",
    "limits",
    "lazy",
    "visible_text",
    "store.engine",
    "store.sqlite_engine",
    "store.thread_signals",
    "store.statement",
    "store.wakeups",
    "store.schema",
    "service.observability",
    "service.request_bodies",
    "service.app",
    "service.rate",
    "service.budgets",
    "service.worker_threads",
)
"""The cross-cutting rooms: events, tracing, time, ids, the engine's internals, and the web middleware."""
BROWSER = {"accept": "text/html", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
BASE = "https://reviews.example"


class Walk:
    """The rooms that were entered, in order, and how often a room was entered again."""

    def __init__(self) -> None:
        self.has_begun = False
        self.rooms: dict[str, int] = {}
        self.again = 0
        self._at: dict[int, str] = {}
        self._names: dict[str, str | None] = {}

    def hook(self, frame: FrameType, event: str, _argument: Any) -> None:
        """The profile hook: record the room of each call."""
        if event != "call" or not self.has_begun:
            return
        name = self._name(frame.f_code.co_filename)
        thread = threading.get_ident()
        if name is None or self._at.get(thread) == name:
            return
        self._at[thread] = name
        if name in self.rooms:
            self.again += 1
        self.rooms[name] = self.rooms.get(name, 0) + 1

    def _name(self, file: str) -> str | None:
        if file not in self._names:
            path = Path(file)
            inside = path.is_relative_to(ROOT / "askfirst")
            parts = path.relative_to(ROOT / "askfirst").with_suffix("").parts if inside else ()
            self._names[file] = ".".join(parts) if inside else None
        return self._names[file]


async def walked(path: Callable[[Callable[[], None]], Awaitable[None]]) -> Walk:
    """Walk a path twice and record the second walk, so that what happens only once in a process does not count.

    The hook is set before the path starts threads, and counts from the moment at which the path calls ``begin``.
    """
    walk = Walk()
    await path(lambda: None)

    def begin() -> None:
        walk.has_begun = True

    threading.setprofile(walk.hook)
    sys.setprofile(walk.hook)
    try:
        await path(begin)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walk


@tool(requires_approval=True)
async def refund(order: str, cents: int) -> str:
    """Pay an order back."""
    return f"paid {cents} for {order}"


def model() -> ScriptedModel:
    return ScriptedModel([ToolCall("c1", "refund", {"order": "A-1042", "cents": 4900}), "done"])


async def over_the_page(begin: Callable[[], None]) -> None:
    """A prompt pauses, the request becomes a case, a person approves on the page, and the agent goes on."""
    with tempfile.TemporaryDirectory() as folder:
        async with SQLiteCheckpointer(Path(folder) / "walk.db") as store:
            cases: asyncio.Queue[Any] = asyncio.Queue()
            app = create_app(store, base_url=BASE, on_case=cases.put, hold_seconds=0)
            async with app.router.lifespan_context(app):
                agent = Agent(model=model(), tools=[refund], checkpointer=store)
                begin()
                assert (await agent.prompt("Pay A-1042 back")).status == "paused"
                link = await review_link(app, (await cases.get()).case_id)
                async with httpx2.AsyncClient(
                    transport=httpx2.ASGITransport(app), headers=BROWSER
                ) as browser:
                    await _approve(browser, link)
                assert (await agent.resume()).text == "done"


async def _approve(browser: httpx2.AsyncClient, link: str) -> None:
    page = (await browser.get(link)).text
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', page))
    action = html.unescape(re.findall(r'<form[^>]* action="([^"]*)"', page)[0])
    sent = await browser.post(
        httpx2.URL(link).join(action),
        data={**{name: html.unescape(value) for name, value in hidden.items()}, "action": "approve"},
        headers={"origin": BASE, "sec-fetch-site": "same-origin"},
    )
    assert sent.status_code == 303, sent.text


async def run_and_resume(begin: Callable[[], None]) -> None:
    """`run_agent` until it pauses, and `run_agent_resume` with an approval."""
    spec = AgentSpec("desk", model(), [refund])
    begin()
    paused = await run_agent(spec, "Pay A-1042 back")
    assert paused.checkpoint is not None
    answer = {"id": paused.pending_approvals[0].id, "decision": "approve"}
    assert (await run_agent_resume(spec, paused.checkpoint, [answer])).text == "done"


async def http_202(begin: Callable[[], None]) -> None:
    """A service answers 202; the client delivers the link, polls, and gets the outcome."""
    transport = httpx2.MockTransport(_service)

    async def heard(notice: Any) -> None:
        """A delivery that does nothing."""

    async with (
        httpx2.AsyncClient(transport=transport) as http,
        HitlClient(http, deliver=heard, min_poll_interval=0.01, poll_interval=0.01) as client,
    ):
        begin()
        outcome = await client.request("POST", f"{BASE}/orders", json={})
        assert outcome.status == "completed"


def _service(request: httpx2.Request) -> httpx2.Response:
    if request.method == "POST":
        hitl = {
            "spec_version": "0.8",
            "case_id": "case-1",
            "review_url": f"{BASE}/review/case-1?token=t",
            "poll_url": f"{BASE}/poll/case-1",
            "type": "approval",
            "prompt": "Pay A-1042 back?",
            "created_at": "2026-01-01T00:00:00Z",
            "expires_at": "2999-01-01T00:00:00Z",
        }
        return httpx2.Response(202, json={"status": "human_input_required", "message": "Wait.", "hitl": hitl})
    result = {"action": "approve", "data": {}}
    return httpx2.Response(
        200,
        json={
            "status": "completed",
            "case_id": "case-1",
            "completed_at": "2026-01-01T00:01:00Z",
            "result": result,
        },
    )


WALKS = (
    ("an approval from prompt to result over the page", over_the_page, 60),
    ("run_agent and resume", run_and_resume, 31),
    ("an HTTP 202", http_202, 17),
)


def walk_all(*, show: bool) -> None:
    """Walk the three paths, and print how many rooms each goes through."""
    for name, path, wanted in WALKS:
        walk = asyncio.run(walked(path))
        own = [room for room in walk.rooms if room not in CROSS_CUTTING]
        print(
            f"{name}: {len(walk.rooms)} rooms (wanted: {wanted}), {len(own)} without the cross-cutting ones,"
        )
        print(f"  entered again {walk.again} times")
        if show:
            print("  " + " -> ".join(walk.rooms))
