"""The bodies of a run's calls while they are under way: which go on, and which only wait for people."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from assent.errors import StoreError
from assent.messages import ToolResultMessage

if TYPE_CHECKING:
    from assent.agent.run import Run


class Bodies:
    """Calls that a run has started together, some of which are subagents.

    A subagent that waits for a person rests. While all that is left of the group rests, nothing goes on in the
    caller either, and its thread, too, is leased to nobody. A subagent that goes on takes its caller's lease
    first, and that one its own caller's: so if two workers have the answer, one of them gets the whole tree.
    """

    __slots__ = ("_keeps_result", "_left", "_resting", "_results", "_run", "lock")

    def __init__(
        self, run: Run, keeps_result: Mapping[str, bool], results: dict[str, ToolResultMessage]
    ) -> None:
        self._run = run
        self._keeps_result = keeps_result
        self._left = set(keeps_result)
        self._resting: set[str] = set()
        self._results = results
        self.lock = asyncio.Lock()
        """Held while something is written to the run's thread: its bodies do so one at a time."""

    def is_alone(self, call_id: str) -> bool:
        """Whether this is all that is left of the group."""
        return self._left == {call_id}

    async def rest(self, call_id: str) -> bool:
        """A body waits for a person from now on. True if the thread was given back for it."""
        self._resting.add(call_id)
        return await self._give_back()

    def stir(self, call_id: str) -> None:
        """A body waits no longer."""
        self._resting.discard(call_id)

    async def wake(self, call_id: str) -> None:
        """A body is about to write to its own thread: hold ours; raises `LeaseHeld` or `LeaseLost`."""
        self.stir(call_id)
        async with self.lock:
            if self._run.journal is not None and not self._run.journal.holds:
                await self._run.commit()

    async def done(self, call_id: str) -> bool:
        """A body has come to its end. True if the thread was given back, for the others wait."""
        self._left.discard(call_id)
        self._resting.discard(call_id)
        return await self._give_back()

    async def _give_back(self) -> bool:
        """Give the thread back if all that is left rests, with the results of those that are done."""
        async with self.lock:
            run = self._run
            if not self._left or self._left - self._resting or run.journal is None or not run.journal.holds:
                return False
            with suppress(StoreError):  # the next step raises it again
                await run.append(*self._take_finished())
                await run.commit(release=True)
            return not run.journal.holds

    def _take_finished(self) -> list[ToolResultMessage]:
        """The results there are. Those of subagents stay on their own threads while another one waits."""
        finished = [
            call_id
            for call_id, keeps in self._keeps_result.items()
            if call_id not in self._left and call_id in self._results and not keeps
        ]
        return [self._results.pop(call_id) for call_id in finished]
