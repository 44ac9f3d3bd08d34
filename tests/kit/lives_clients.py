"""Processes that wait for reviews until they are killed, or until they have the outcome.

A *life* is one process with a client on a shared store. At the point that ``die`` names, it kills itself with
SIGKILL. The links for the person are written to a file, so that a test knows which were sent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from pydantic import BaseModel

from askfirst import Agent
from askfirst.checkpointer import base
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.client import durable
from askfirst.client import http_tool as tools
from askfirst.client.case_wait import Waiting
from askfirst.client.client import HitlClient
from askfirst.client.durable import KeptWait, Wait, Waits
from askfirst.client.http_tool import http_tool, resume_when_decided
from askfirst.client.outcome import ReviewOutcome
from askfirst.delivery.base import Notice
from askfirst.errors import ReviewError
from askfirst.hitl.testing import crash_at
from askfirst.messages import AssistantMessage, Message, ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel
from askfirst.protocol import is_final
from kit import shared_tls
from kit.lives_agents import append, sure_of_its_lease
from kit.stores import connect

durable.CLAIM_SECONDS = 2.0
tools.LOOK_SECONDS = 0.2
LEASE_SECONDS = 2.0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _around(owner: Any, name: str, before: Callable[..., bool], after: Callable[..., bool]) -> None:
    """Die before or after a method, if a function of its arguments returns True."""
    real = getattr(owner, name)

    async def wrapped(*args: Any, **options: Any) -> Any:
        if before(*args):
            _die()
        done = await real(*args, **options)
        if after(*args):
            _die()
        return done

    setattr(owner, name, wrapped)


def _never(*_: Any) -> bool:
    return False


def _always(*_: Any) -> bool:
    return True


def _arm(die: str | None) -> None:
    match die:
        case "about to send":
            _around(Wait, "sending", _never, _always)
        case "sent":
            _around(Wait, "waiting", _always, _never)
        case "stored":
            _around(Wait, "waiting", _never, _always)
        case "delivered":
            _around(Wait, "waiting", _never, lambda _, state: bool(state["sent"]))
        case "answered":
            _before_the_answer()
        case "ended":
            _around(Wait, "ended", _never, _always)
        case "plain answer":
            _around(Wait, "answered", _never, _always)
        case "read":
            real = tools._decided

            def read(outcome: ReviewOutcome) -> Any:
                _die()
                return real(outcome)

            tools._decided = read
        case _:
            pass


def _note_what_is_stored(links: Path) -> None:
    """Write a line for each stored state that has a sent message: from then on no other process sends the link."""
    real = Wait.waiting

    async def waiting(self: Wait, state: Any) -> None:
        await real(self, state)
        if state["sent"]:
            append(links, {"noted": state["hitl"]["case_id"]})

    Wait.waiting = waiting  # type: ignore[method-assign]


def _before_the_answer() -> None:
    """Die when the service's final answer has arrived, before it is processed."""
    real = Waiting._take

    def take(self: Waiting, answer: Any, **options: Any) -> None:
        if is_final(answer.status):
            _die()
        real(self, answer, **options)

    Waiting._take = take  # type: ignore[method-assign]


def _client(job: dict[str, Any], store: SqlCheckpointer, http: httpx2.AsyncClient) -> HitlClient:
    async def deliver(notice: Notice) -> None:
        if notice.review_url is not None:
            append(
                Path(job["links"]), {"kind": notice.kind, "case": notice.case_id, "link": notice.review_url}
            )

    return HitlClient(http, deliver=deliver, store=store, poll_interval=0.1, min_poll_interval=0.1)


async def warm_up(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> None:
    """Load what a life needs, in the process that lives are forked from."""
    shared_tls.begin()
    async with (
        connect(job["kind"], job["address"]) as store,
        httpx2.AsyncClient(headers=job["headers"]) as http,
        _client(job, store, http) as client,
    ):
        http_tool(client, "POST", job["url"], name="ask", parameters=Question)
        await http.get(job["url"])


async def wait(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """A life with a plain request."""
    _note_what_is_stored(Path(job["links"]))
    _arm(job["die"])
    async with (
        connect(job["kind"], job["address"]) as store,
        httpx2.AsyncClient(headers=job["headers"]) as http,
        _client(job, store, http) as client,
    ):
        try:
            outcome = await client.request(
                "POST",
                job["url"],
                key=job["key"],
                idempotency_key=job["idempotency_key"],
                json={"type": "approval", "prompt": job["key"]},
            )
        except ReviewError as error:
            return {"error": type(error).__name__}
        assert isinstance(outcome, ReviewOutcome)
        return {"status": outcome.status, "action": outcome.action, "case": outcome.case_id}


class Question(BaseModel):
    type: str = "approval"
    prompt: str


def agent_of(job: dict[str, Any], store: SqlCheckpointer, client: HitlClient) -> Agent:
    tool = http_tool(client, "POST", job["url"], name="ask", parameters=Question)

    def turn(messages: list[Message]) -> Any:
        if any(isinstance(message, AssistantMessage) for message in messages):
            return "done"
        return ToolCall("call-1", "ask", {"prompt": job["key"]})

    return Agent(
        model=ScriptedModel([turn] * 10), tools=[tool], checkpointer=store, thread_id=f"thread {job['key']}"
    )


async def work(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """A life with an agent: it prompts, and then resumes its thread's waits from the store."""
    _note_what_is_stored(Path(job["links"]))
    _arm(job["die"])
    _only_its_own(f"thread {job['key']}")
    with sure_of_its_lease():
        if not str(job["die"]).startswith("commit "):
            return await _work(job)
        with crash_at(job["die"].removeprefix("commit ")), _standing_still(job.get("stands_still", 0)):
            return await _work(job)


@contextmanager
def _standing_still(seconds: float) -> Generator[None]:
    """Simulate a busy machine: block the process after an effect was begun, before its body runs."""
    before = base.hook

    def stand_still(point: str) -> None:
        if point == "effect.started":
            time.sleep(seconds)
        if before is not None:
            before(point)

    base.hook = stand_still
    try:
        yield
    finally:
        base.hook = before


def _only_its_own(thread_id: str) -> None:
    """Make this process see only its own thread's waits: many lives share a store; each dies at its own points."""
    real = Waits.kept

    async def kept(self: Waits) -> AsyncIterator[KeptWait]:
        async for each in real(self):
            if each.thread_id == thread_id:
                yield each

    Waits.kept = kept  # type: ignore[method-assign]


async def _work(job: dict[str, Any]) -> dict[str, Any]:
    async with (
        connect(job["kind"], job["address"], lease_seconds=LEASE_SECONDS) as store,
        httpx2.AsyncClient(headers=job["headers"]) as http,
        _client(job, store, http) as client,
    ):
        agent = agent_of(job, store, client)
        if not await agent.load():
            await agent.prompt("Go")
        resumed = resume_when_decided(client, lambda _: agent_of(job, store, client))
        looking = asyncio.create_task(_drain(resumed))
        try:
            while (messages := await agent.load()) and _is_open(messages):  # until some process ended the run
                await asyncio.sleep(0.05)
                if job.get("resume"):
                    await agent.resume()
                if looking.done():
                    looking.result()
        finally:
            looking.cancel()
            await asyncio.wait({looking})
        told = [message for message in messages if isinstance(message, ToolResultMessage)]
        return {"results": [[message.text, message.is_error] for message in told]}


async def _drain(results: Any) -> None:
    async for _ in results:
        pass


def _is_open(messages: tuple[Message, ...]) -> bool:
    last = messages[-1]
    return not (isinstance(last, AssistantMessage) and not last.tool_calls)
