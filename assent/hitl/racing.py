"""Races between processes, for tests: many of them do one thing each, all at the same moment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from assent.agent.run import Thread
from assent.agent.session import Session
from assent.agent.spec import AgentSpec
from assent.checkpointer.base import Checkpointer
from assent.checkpointer.connect import checkpointer_from_url
from assent.clock import SystemClock
from assent.errors import HitlError, HitlNoPendingRequest, HitlStaleAnswer
from assent.models.scripted import ScriptedModel


@dataclass(frozen=True, slots=True)
class RaceOutcome:
    """What came of one process: what it returned, or the exception that ended it, or the signal.

    ``facts`` are the exception's own attributes, as JSON has them: ``status`` of a `HitlStaleAnswer`, or the list
    of ``faults`` of a `HitlInvalidAnswer`.
    """

    value: Any = None
    error: str | None = None
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    signal: int | None = None

    @property
    def won(self) -> bool:
        """Whether it did what it came for."""
        return self.error is None and self.signal is None


@dataclass(frozen=True, slots=True)
class Cancels:
    """In place of an answer: this process cancels the request."""

    reason: str = "cancelled"


@dataclass(frozen=True, slots=True)
class TimesOut:
    """In place of an answer: this process's clock is past the deadline, so it settles the request as timed out.

    Seeing that it is too late is no claim: where the time-out wins, every one of these has won.
    """


@dataclass(frozen=True, slots=True)
class Aborts:
    """In place of an answer: this process aborts the conversation at the request, if that is still open.

    Whatever else is open in the conversation ends with it.
    """

    reason: str = "aborted"


class RaceTrack:
    """A process from which racers are forked: ``with RaceTrack() as track: await track.race(...)``.

    The first race on it costs an import of everything, the others little. There are none where there is no
    ``os.fork`` (Windows).
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = asyncio.Lock()

    async def race(
        self, target: str, jobs: Sequence[Any], *, warm_up: Any = None, timeout: float = 120.0
    ) -> list[RaceOutcome]:
        """Run ``target`` (``"module:function"``) once for each job, each in a process of its own.

        The function is async and takes its job (JSON) and ``start``, which it awaits when it is ready: it
        returns when all the others are, too. What the function returns (JSON) is the outcome's value.
        ``warm_up`` is a job that is done once, alone, in the process that the others are forked from: they
        inherit what it has loaded. Raises `TimeoutError`, and ends all of them, if they are not done in
        ``timeout`` seconds.
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
        """End the process and whatever was forked from it; the next race starts another."""
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
            raise RuntimeError("the race track's process ended; see what it said on standard error")
        return answer


def _start() -> subprocess.Popen[bytes]:
    """The process that racers are forked from, in a process group of its own."""
    path = os.pathsep.join(each for each in sys.path if each)
    return subprocess.Popen(
        [sys.executable, "-m", "assent.hitl.racer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )


async def race_answers(
    url: str, thread_id: str, question_id: str, answers: Sequence[Any], *, track: RaceTrack | None = None
) -> list[RaceOutcome]:
    """Answer one stored request from as many processes as there are answers, all at once.

    ``url`` is the store's (see `checkpointer_from_url`). An answer is a model or plain JSON, or one of
    `Cancels`, `TimesOut` and `Aborts`. The outcomes come in the order of the answers: the one that won has the
    request's new status as its value, the others the error they were told, mostly `HitlStaleAnswer`.
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
    """One racer of `race_answers`: settle the request, and return how it is settled then."""
    thread_id, question_id, act = job["thread_id"], job["question_id"], job["act"]
    clock = _Later() if act == "TimesOut" else None
    async with checkpointer_from_url(job["url"], clock=clock) as store:
        found = await store.request(thread_id, question_id)  # it is connected, and has seen the schema
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
            await _AbortingAt(store, thread_id, question_id).close(job["reason"])
            return "aborted"
        settled = await store.settle(thread_id, question_id, job["answer"], by=job["by"], via="race")
        return settled.status


class _AbortingAt(Session):
    """What `Agent.abort_pending` does, as long as one request waits, and not at the next one."""

    __slots__ = ("_question_id", "_settling")

    def __init__(self, store: Checkpointer, thread_id: str, question_id: str) -> None:
        super().__init__(AgentSpec("agent", ScriptedModel([])), Thread(thread_id), None, store, is_new=False)
        self._settling = store
        self._question_id = question_id

    async def check_owner(self) -> None:
        """Anybody's: it stands for whichever agent aborts, and has no tools of its own."""

    async def load(self, *, fresh: bool = False) -> None:
        """Know the thread; raises what `Checkpointer.cancel` would if the request is not open.

        Each attempt to abort begins here. Who settles the request after this voids the attempt.
        """
        await super().load(fresh=fresh)
        try:
            found = await self._settling.expire(self.thread_id, self._question_id)
        except HitlNoPendingRequest:
            if self.thread.pending is not None:
                raise HitlStaleAnswer(self._question_id) from None
            raise
        if found.status != "pending":
            raise HitlStaleAnswer(self._question_id, found.status)


class _Later(SystemClock):
    """A clock that is a hundred years ahead: past every deadline."""

    def now(self) -> float:
        return super().now() + 100 * 365.25 * 86400
