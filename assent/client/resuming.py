"""Going on with agents' threads whose tools waited for a review, when that has ended."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from assent.agent.agent import Agent
from assent.agent.fold import has_failed, is_finished, unresolved_calls
from assent.agent.result import AgentResult
from assent.client.client import HitlClient
from assent.client.waits import KeptWait
from assent.errors import ReviewError, StoreError

logger = logging.getLogger("assent.client")

LOOK_SECONDS = 5.0
"""How often the store is looked at for waits that nobody sees to."""
_SOON, _LATER = 0.2, 60.0

MakeAgent = Callable[[str], Agent | Awaitable[Agent]]
"""From a thread's id to an agent on it, with the tools and the checkpointer that it had."""


async def resume_when_decided(client: HitlClient, make_agent: MakeAgent) -> AsyncIterator[AgentResult]:
    """See to the reviews that tools of `http_tool` wait for, and resume each thread when its review has ended.

    It gives the result of every run that it went on with, and never ends by itself. Any number of processes may
    do this on one store: each wait is seen to by one of them, and another takes over if that one dies. The
    client has a store; ``make_agent`` makes the agent of a thread.
    """
    results: asyncio.Queue[AgentResult] = asyncio.Queue()
    resuming = _Resuming(client, make_agent, results)
    looking = asyncio.create_task(resuming.look())
    try:
        while True:
            getting = asyncio.ensure_future(results.get())
            await asyncio.wait({getting, looking}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                looking.result()  # it ends only by an error
            yield getting.result()
    finally:
        looking.cancel()
        await asyncio.wait({looking})


class _Resuming:
    def __init__(
        self, client: HitlClient, make_agent: MakeAgent, results: asyncio.Queue[AgentResult]
    ) -> None:
        self._client = client
        self._waits = client.keyed.waits
        self._make_agent = make_agent
        self._results = results
        self._under_way: set[str] = set()

    async def look(self) -> None:
        """Begin what nobody sees to, again and again."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    async for wait in self._waits.kept():
                        free = not wait.is_held and wait.key not in self._under_way
                        if wait.thread_id is not None and free:
                            self._under_way.add(wait.key)
                            tasks.create_task(self._see_to(wait, wait.thread_id))
                except StoreError as error:
                    logger.warning("the store could not be looked at, will try again: %s", error)
                await asyncio.sleep(LOOK_SECONDS)

    async def _see_to(self, wait: KeptWait, thread_id: str) -> None:
        """Wait for the review, then go on with the thread; what goes wrong is tried again later."""
        pause = _SOON
        try:
            while not await self._tried(wait, thread_id):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LATER)
        finally:
            self._under_way.discard(wait.key)

    async def _tried(self, wait: KeptWait, thread_id: str) -> bool:
        """Whether there is nothing left to do."""
        try:
            ended = await self._client.resume_wait(wait.key)
            found = await self._waits.find(wait.key)
            if isinstance(ended, ReviewError) and found is not None and found.status == "waiting":
                logger.warning("a review cannot be waited for just now: %s", ended)
                return False
            gone_on, result = await self._resumed(wait, thread_id)
            if not gone_on:
                return False
            await self._waits.settle(wait.key)
            if result is not None:
                self._results.put_nowait(result)
            return True
        except Exception as error:
            logger.warning(
                "thread %s could not be resumed, will try again: %s", thread_id, type(error).__name__
            )
            return False

    async def _resumed(self, wait: KeptWait, thread_id: str) -> tuple[bool, AgentResult | None]:
        """Whether the thread has gone on past its wait, and the run in which it just did."""
        made = self._make_agent(thread_id)
        agent = await made if inspect.isawaitable(made) else made
        messages = await agent.load()
        if is_finished(messages) or has_failed(messages):
            return True, None
        await self._waits.unread(wait.key)
        result = await agent.resume()
        return result.status != "suspended" or await self._is_past(wait, result), result

    async def _is_past(self, wait: KeptWait, result: AgentResult) -> bool:
        """Whether a run that was suspended waits for something else now.

        If not, another worker has the thread, or has had it until it died a moment ago.
        """
        own, _, call_id = wait.key.rpartition("/")
        if own == wait.thread_id:
            open_calls = [call.id for call in unresolved_calls(result.messages)]
            return bool(open_calls) and call_id not in open_calls
        found = await self._waits.find(wait.key)  # a subagent's call, which is on a thread of its own
        return found is not None and found.is_read
