"""Taking turns at a channel: it asks one thing at a time, and several subagents may want to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

from assent.agent.host import hosting
from assent.channels import HitlChannel
from assent.errors import HitlAborted, HitlDetached

T = TypeVar("T")


class Turns:
    """Shared by an agent and its subagents for the length of a run: one line of askers for each channel."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}

    async def take(self, channel: HitlChannel, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask when it is our turn, and wait for the answer."""
        line = self._lines.setdefault(id(channel), _Line())
        if line.is_taken and channel.checkpointer is not None and (host := hosting.get()) is not None:
            await host.stand_back()
        return await line.take(ask)

    def go_on(self) -> None:
        """Let all ask again: whoever told them to stop was too late."""
        for line in self._lines.values():
            line.stopped = None


class _Line:
    """Those who want to ask through one channel.

    When one of them is told to stop waiting, so are those that have not had their turn.
    """

    __slots__ = ("_lock", "stopped")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.stopped: HitlDetached | HitlAborted | None = None

    @property
    def is_taken(self) -> bool:
        return self._lock.locked()

    async def take(self, ask: Callable[[], Awaitable[T]]) -> T:
        async with self._lock:
            if self.stopped is not None:
                raise self.stopped
            try:
                return await ask()
            except (HitlDetached, HitlAborted) as signal:
                self.stopped = signal
                raise


taking: ContextVar[Turns | None] = ContextVar("assent_taking", default=None)
"""How the agents that this code works for take turns; None where one agent works alone."""

_has_turn: ContextVar[HitlChannel | None] = ContextVar("assent_has_turn", default=None)


async def in_turn(channel: HitlChannel, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask through a channel when no other agent of this run does; whoever has the turn may ask at once.

    A channel without a store does not give the thread back with its request, so that is done here.
    """
    turns, host = taking.get(), hosting.get()
    if host is not None and channel.checkpointer is None:
        await host.stand_back()
        if host.current_run is not None:
            host.current_run.stood_back = True
    if turns is None or _has_turn.get() is channel:
        return await ask()

    async def now() -> T:
        token = _has_turn.set(channel)
        try:
            return await ask()
        finally:
            _has_turn.reset(token)

    return await turns.take(channel, now)
