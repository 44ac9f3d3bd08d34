"""Test helpers: scripted people, a clock that tests advance, crashes, races between processes."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import json
import math
import os
import signal
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeGuard

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from askfirst.agent.live_thread import LiveThread
from askfirst.agent.session import Session
from askfirst.agent.spec import Actor, AgentSpec
from askfirst.agent.thread import Thread
from askfirst.channels import ChannelHost
from askfirst.checkpointer import base
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.clock import SystemClock
from askfirst.errors import HitlCancelled, HitlError, HitlNoPendingRequest, HitlStaleAnswer, HitlTimedOut
from askfirst.hitl.memory import InMemoryChannel
from askfirst.models.scripted import ScriptedModel
from askfirst.requests import HitlRequest, StoredRequest

__all__ = [
    "Aborts",
    "Cancels",
    "FakeClock",
    "NoopChannel",
    "RaceOutcome",
    "RaceTrack",
    "ScriptedChannel",
    "TimesOut",
    "crash_at",
    "race_answers",
]


class _InstantChannel(InMemoryChannel):
    """A channel that answers every request itself, at once."""

    @abstractmethod
    def _reply(self, request: HitlRequest) -> Any:
        """The scripted answer."""

    async def _record(self, request: HitlRequest, host: ChannelHost | None) -> StoredRequest:
        stored = await super()._record(request, host)
        if stored.status != "pending":
            return stored
        try:
            reply = self._reply(request)
            if inspect.isawaitable(reply):
                reply = await reply
            await self._announce(request, host)
            if _is_exception(reply):
                if host is not None and (ended := _settled_by(stored, reply)) is not None:
                    await host.announce_settled(ended)
                raise reply
            return await self._settle(request.question_id, reply, None, None, request.digest)
        except BaseException:
            self.forget_request(request.question_id)
            raise


class ScriptedChannel(_InstantChannel):
    """Gives the answers of a script, in order.

    An answer is a value (a model or plain JSON, checked like a person's answer), a function (sync or async) that
    returns one for a request, or an exception or its class, which is raised where the answer is awaited. ``history``
    has all requests. When the answers are used up, asking raises `HitlError`.
    """

    def __init__(self, answers: Sequence[Any] = ()) -> None:
        super().__init__()
        self._answers = list(answers)
        self.history: list[HitlRequest] = []

    def _reply(self, request: HitlRequest) -> Any:
        self.history.append(request)
        if len(self.history) > len(self._answers):
            raise HitlError(
                f"the scripted channel has {len(self._answers)} answers and was asked once more: {request.payload!r}"
            )
        answer = self._answers[len(self.history) - 1]
        return answer(request) if callable(answer) and not _is_exception(answer) else answer


class NoopChannel(_InstantChannel):
    """Approves and confirms everything, and answers questions with the first option, or with an empty text.

    It does not repeat a call in doubt: an escalation is answered with ``skip``, or with its last choice.
    """

    def _reply(self, request: HitlRequest) -> Any:
        return request.payload.agreement

    def fit(self, request: HitlRequest, answer: Any) -> Any:
        """Answers to questions are not checked: this channel may leave a required one empty."""
        return answer if request.payload.questions_asked else super().fit(request, answer)


def _is_exception(answer: Any) -> TypeGuard[BaseException | type[BaseException]]:
    return isinstance(answer, BaseException) or (
        isinstance(answer, type) and issubclass(answer, BaseException)
    )


def _settled_by(stored: StoredRequest, reply: BaseException | type[BaseException]) -> StoredRequest | None:
    """The request as settled by an exception: timed out or cancelled; None if it stays open."""
    kind = reply if isinstance(reply, type) else type(reply)
    if issubclass(kind, HitlTimedOut):
        return replace(stored, status="timed_out")
    if issubclass(kind, HitlCancelled):
        return replace(stored, status="cancelled")
    return None


class FakeClock:
    """A clock that stands still until it is advanced: ``await clock.advance(30)``.

    Give it to a channel and to a checkpointer, and their deadlines pass when the test says so.
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._count = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        """The time it was advanced to."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._count += 1
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Advance the clock: tasks whose sleeps end by then wake in order, and run."""
        if not (_is_number(seconds) and 0 <= seconds < math.inf):  # refuses NaN, too
            raise ValueError(f"a clock is advanced by a number of seconds, at least 0, not by {seconds!r}")
        until = self._now + seconds
        await _run_ready_tasks()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await _run_ready_tasks()
        self._now = until
        await _run_ready_tasks()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def _run_ready_tasks() -> None:
    """Yield to the loop until all tasks that can run have run."""
    for _ in range(20):
        await asyncio.sleep(0)


@contextmanager
def crash_at(point: str, *, skip: int = 0, own: bool = False) -> Generator[None]:
    """Kill this process (SIGKILL) when a crash point is reached; for the child process of a test.

    Points are named after the commits: ``"effect.started"`` is right after that commit, and
    ``"before:effect.started"`` right before it; see `askfirst.checkpointer.base.POINTS`. The first ``skip`` times the
    point is passed. An unknown name raises `HitlError`, unless ``own``: then the test itself reports the point with
    `askfirst.checkpointer.base.reached`.
    """
    if not isinstance(point, str):
        raise HitlError(f"a point to crash at is a text, not {type(point).__name__}")
    if not own and point.removeprefix("before:") not in base.POINTS:
        known = ", ".join(base.POINTS)
        raise HitlError(f"{point!r} is not a crash point; there are {known}, each also as before:...")
    left = skip

    def kill(reached: str) -> None:
        nonlocal left
        if reached == point:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    with _crash_hook(kill):
        yield


@contextmanager
def _crash_hook(hook: Callable[[str], None]) -> Generator[None]:
    """Have the hook called at each crash point within the ``with`` block."""
    before, base.hook = base.hook, hook
    try:
        yield
    finally:
        base.hook = before


# Races between processes, for tests: many processes do one thing each, at the same moment.


@dataclass(frozen=True, slots=True)
class RaceOutcome:
    """The outcome of one process: its return value, the exception that ended it, or the signal that killed it.

    ``facts`` are the exception's attributes as JSON, such as the ``status`` of a `HitlStaleAnswer` or the ``faults``
    of a `HitlInvalidAnswer`.
    """

    value: Any = None
    error: str | None = None
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    signal: int | None = None

    @property
    def won(self) -> bool:
        """Whether the process's function returned."""
        return self.error is None and self.signal is None


@dataclass(frozen=True, slots=True)
class Cancels:
    """Given in place of an answer: this process cancels the request."""

    reason: str = "cancelled"


@dataclass(frozen=True, slots=True)
class TimesOut:
    """Given in place of an answer: this process settles the request as timed out, because its clock is past the
    deadline.

    If the time-out wins, all processes with `TimesOut` have won.
    """


@dataclass(frozen=True, slots=True)
class Aborts:
    """Given in place of an answer: this process aborts the thread while the request is still open.

    Other open requests of the thread are settled with it.
    """

    reason: str = "aborted"


class RaceTrack:
    """A process from which racers are forked: ``with RaceTrack() as track: await track.race(...)``.

    The first race imports everything; later races are quick. It needs ``os.fork``, so it does not run on Windows.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = asyncio.Lock()

    async def race(
        self, target: str, jobs: Sequence[Any], *, warm_up: Any = None, timeout: float = 120.0
    ) -> list[RaceOutcome]:
        """Run ``target`` (``"module:function"``) once for each job, each in a separate process.

        The function is async and takes its job (JSON) and ``start``. It awaits ``start()`` when it is ready, which
        returns when all the others are ready too. What the function returns (JSON) is the outcome's value.
        ``warm_up`` is a job that runs once before, in the parent process, so that the children inherit what it has
        loaded. Raises `TimeoutError`, and kills all processes, if they have not ended in ``timeout`` seconds.
        """
        race = {"target": target, "jobs": list(jobs), "path": sys.path, "warm_up": warm_up}
        async with self._lock:
            exchange = asyncio.ensure_future(asyncio.to_thread(self._exchange, json.dumps(race).encode()))
            try:
                async with asyncio.timeout(timeout):
                    line = await asyncio.shield(exchange)
            except BaseException:
                await asyncio.to_thread(self.close)
                await asyncio.wait([exchange])
                exchange.exception()
                raise
        return [RaceOutcome(**outcome) for outcome in json.loads(line)]

    def close(self) -> None:
        """Kill the process and all processes forked from it; the next race starts another."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, line: bytes) -> bytes:
        process = self._process = self._process or _start()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the race track's process has no pipes")
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError("the race track's process ended; standard error says why")
        return answer


def _start() -> subprocess.Popen[bytes]:
    """Start the process that racers are forked from, in a separate process group."""
    path = os.pathsep.join(each for each in sys.path if each)
    return subprocess.Popen(
        [sys.executable, "-m", "askfirst.hitl.racer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )


async def race_answers(
    url: str, thread_id: str, question_id: str, answers: Sequence[Any], *, track: RaceTrack | None = None
) -> list[RaceOutcome]:
    """Answer one stored request from as many processes as there are answers, all at once.

    ``url`` is the store's URL (see `checkpointer_from_url`). An answer is a model or plain JSON, or one of
    `Cancels`, `TimesOut` and `Aborts`. The outcomes are in the order of the answers: the winner has the request's new
    status as its value, the others their error, mostly `HitlStaleAnswer`.
    """
    jobs = [
        {"url": url, "thread_id": thread_id, "question_id": question_id, "by": f"racer-{n}", **_act(answer)}
        for n, answer in enumerate(answers)
    ]
    look = {"url": url, "thread_id": thread_id, "question_id": question_id, "act": "looks"}
    racers = track or RaceTrack()
    try:
        return await racers.race(f"{__name__}:settle_once", jobs, warm_up=look)
    finally:
        if track is None:
            await asyncio.to_thread(racers.close)


def _act(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Cancels | Aborts):
        return {"act": type(answer).__name__, "reason": answer.reason}
    if isinstance(answer, TimesOut):
        return {"act": "TimesOut"}
    plain = answer.model_dump(mode="json") if isinstance(answer, BaseModel) else to_jsonable_python(answer)
    return {"act": "answers", "answer": plain}


async def settle_once(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> str:
    """One racer of `race_answers`: settle the request, and return its status after that."""
    thread_id, question_id, act = job["thread_id"], job["question_id"], job["act"]
    clock = _FarFutureClock() if act == "TimesOut" else None
    async with checkpointer_from_url(job["url"], clock=clock) as store:
        found = await store.request(thread_id, question_id)  # connects, and loads the schema
        if act == "looks":
            return "unknown" if found is None else found.status
        await start()
        if act == "Cancels":
            settled = await store.cancel(thread_id, question_id, job["reason"], by=job["by"], via="race")
            return settled.status
        if act == "TimesOut":
            settled = await store.expire(thread_id, question_id)
            if settled.status == "pending":
                raise HitlError(f"request {question_id!r} has no deadline, so it cannot time out")
            if settled.status != "timed_out":
                raise HitlStaleAnswer(question_id, settled.status)
            return settled.status
        if act == "Aborts":
            await _AbortWhileOpen(store, thread_id, question_id).close(job["reason"])
            return "aborted"
        settled = await store.settle(thread_id, question_id, job["answer"], by=job["by"], via="race")
        return settled.status


class _AbortWhileOpen(Session):
    """`Agent.abort_pending`, but only while one given request is open, not for a later one."""

    __slots__ = ("_question_id", "_settling")

    def __init__(self, store: Checkpointer, thread_id: str, question_id: str) -> None:
        anybody = Actor.root(AgentSpec("agent", ScriptedModel([])), "*")
        super().__init__(anybody, LiveThread(Thread(thread_id), store, is_new=False), None)
        self._settling = store
        self._question_id = question_id

    async def check_owner(self) -> None:
        """Accept every owner: this agent has no tools, and aborts in place of any agent."""

    async def load(self, *, fresh: bool = False) -> None:
        """Load the thread; raises what `Checkpointer.cancel` would raise if the request is not open.

        Each attempt to abort begins here. If the request is settled after this, the attempt's step fails at the
        fence.
        """
        await super().load(fresh=fresh)
        try:
            found = await self._settling.expire(self.thread_id, self._question_id)
        except HitlNoPendingRequest:
            if self.live.thread.pending is not None:
                raise HitlStaleAnswer(self._question_id) from None
            raise
        if found.status != "pending":
            raise HitlStaleAnswer(self._question_id, found.status)


class _FarFutureClock(SystemClock):
    """A clock that is a hundred years ahead: past every deadline."""

    def now(self) -> float:
        return super().now() + 100 * 365.25 * 86400
