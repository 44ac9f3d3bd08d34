"""A test kit for agents that ask: scripted people, a clock to turn by hand, crashes and races on demand."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import math
import os
import signal as signals
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeGuard

from assent.channels import ChannelHost
from assent.checkpointer import points
from assent.errors import HitlCancelled, HitlError, HitlTimedOut
from assent.hitl.memory import InMemoryChannel
from assent.hitl.racing import Aborts, Cancels, RaceOutcome, RaceTrack, TimesOut, race_answers
from assent.requests import (
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    HitlRequest,
    Question,
    StoredRequest,
)

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
    """Answers every request by itself, at once."""

    @abstractmethod
    def _reply(self, request: HitlRequest) -> Any:
        """What the person says."""

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
                if host is not None and (ended := _ended(stored, reply)) is not None:
                    await host.announce_settled(ended)
                raise reply
            return await self._settle(request.question_id, reply, None, None, request.digest)
        except BaseException:
            self.drop(request.question_id)
            raise


class ScriptedChannel(_InstantChannel):
    """Gives the answers of a script, in order.

    An answer is a value (a model or plain JSON, checked like a person's), a function of the request, async or
    not, that returns one, or an exception or its class, which is raised where the answer is awaited. ``history``
    has every request seen. When the answers are used up, asking raises `HitlError`.
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
    """Approves and confirms everything and answers questions with the first option, or with nothing.

    Only what is in doubt is not approved: asked what to do after a failure, it says ``skip``.
    """

    def _reply(self, request: HitlRequest) -> Any:
        payload = request.payload
        if isinstance(payload, ConfirmRequest):
            return True
        if isinstance(payload, ApproveRequest):
            return {"decision": "approve"}
        if isinstance(payload, AskRequest):
            return {question.key: _first(question) for question in payload.questions}
        return "skip" if "skip" in payload.choices else payload.choices[-1]

    def fit(self, request: HitlRequest, answer: Any) -> Any:
        """As it is: saying nothing is an answer here."""
        return answer if isinstance(request.payload, AskRequest) else super().fit(request, answer)


def _is_exception(answer: Any) -> TypeGuard[BaseException | type[BaseException]]:
    return isinstance(answer, BaseException) or (
        isinstance(answer, type) and issubclass(answer, BaseException)
    )


def _ended(stored: StoredRequest, reply: BaseException | type[BaseException]) -> StoredRequest | None:
    """How a request ended whose asker gets this instead of an answer; None if it did not end."""
    kind = reply if isinstance(reply, type) else type(reply)
    if issubclass(kind, HitlTimedOut):
        return replace(stored, status="timed_out")
    if issubclass(kind, HitlCancelled):
        return replace(stored, status="cancelled")
    return None


def _first(question: Question) -> str | list[str]:
    value = question.options[0].value if question.options else ""
    return [value] if question.multi_select else value


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
        """Let time pass: whoever sleeps until then wakes, in order, and gets to run."""
        if not (_is_number(seconds) and 0 <= seconds < math.inf):  # nan is not, either
            raise ValueError(f"a clock is advanced by a number of seconds, from 0 on; {seconds!r} is none")
        until = self._now + seconds
        await _settle_down()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await _settle_down()
        self._now = until
        await _settle_down()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def _settle_down() -> None:
    """Let every task that can run, run."""
    for _ in range(20):
        await asyncio.sleep(0)


@contextmanager
def crash_at(point: str, *, skip: int = 0, own: bool = False) -> Generator[None]:
    """Kill this process (SIGKILL) when a commit's point is reached; for the child process of a test.

    Points are named after the commits: ``"effect.started"`` is right after that commit, and
    ``"before:effect.started"`` right before it; see `assent.checkpointer.points`. ``skip`` lets it pass that
    many times. Another name raises `HitlError`; ``own`` is for a point that the test itself reaches, by
    `points.reached`.
    """
    if not isinstance(point, str):
        raise HitlError(f"a point to crash at is a text, not {type(point).__name__}")
    if not own and point.removeprefix("before:") not in points.POINTS:
        known = ", ".join(points.POINTS)
        raise HitlError(f"{point!r} is no point to crash at; there are {known}, each also as before:...")
    left = skip

    def kill(reached: str) -> None:
        nonlocal left
        if reached == point:
            if left == 0:
                os.kill(os.getpid(), signals.SIGKILL)
            left -= 1

    with _hooked(kill):
        yield


@contextmanager
def _hooked(hook: Callable[[str], None]) -> Generator[None]:
    before, points.hook = points.hook, hook
    try:
        yield
    finally:
        points.hook = before
