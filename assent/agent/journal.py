"""Writing a run's steps to a checkpointer, under the thread's lease."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from assent.checkpointer.base import Checkpointer, RunRecord, Settlement, Step, StoredEffect
from assent.errors import HitlNoPendingRequest, HitlStaleAnswer
from assent.messages import Message
from assent.requests import HitlRequest, StoredRequest


class Journal:
    """One thread's pen: it knows the fence it writes under, and takes the lease when it has to.

    A wait for a person gives the lease back with the step that opens the request; the next step takes it
    again, and fails if another worker has been at the thread meanwhile.

    After a write that failed nothing more is written: a step without the one before it would be a hole in the
    transcript.
    """

    __slots__ = ("_checkpointer", "_failure", "_fence", "_holds", "_parent", "_thread_id")

    def __init__(
        self, checkpointer: Checkpointer, thread_id: str, fence: int, parent: str | None = None
    ) -> None:
        self._checkpointer = checkpointer
        self._thread_id = thread_id
        self._fence = fence
        self._holds = False
        self._parent = parent
        self._failure: Exception | None = None

    @property
    def fence(self) -> int:
        """The fence that the last step left the thread at."""
        return self._fence

    @property
    def failed(self) -> bool:
        """Whether a write has failed, and nothing can be written any more."""
        return self._failure is not None

    @property
    def holds(self) -> bool:
        """Whether the thread is leased to this run."""
        return self._holds

    async def write(
        self,
        run_id: str,
        messages: Sequence[Message],
        *,
        opened: Sequence[HitlRequest] = (),
        settled: Sequence[Settlement] = (),
        started: Sequence[StoredEffect] = (),
        ended: Sequence[str] = (),
        run: RunRecord | None = None,
        release: bool = False,
    ) -> None:
        """Write a step whole, or raise (`LeaseHeld`, `LeaseLost`) and write nothing, now or later."""
        if self._failure is not None:
            raise self._failure
        step = Step(run_id, tuple(messages), opened, settled, started, ended, run, release, self._parent)
        try:
            self._fence = await self._checkpointer.commit(
                self._thread_id, step, fence=self._fence, acquire=not self._holds
            )
        except asyncio.CancelledError:
            # The write is decided by now, and all but surely made; if it was not, the next one fails.
            self._fence, self._holds = self._fence + 1, not release
            raise
        except Exception as failure:
            self._failure, self._holds = failure, False
            raise
        self._holds = not release

    async def cancel(self, question_id: str, why: str) -> StoredRequest | None:
        """End a request of the thread, whoever holds the lease; None if somebody settled it before."""
        try:
            return await self._checkpointer.cancel(self._thread_id, question_id, why)
        except (HitlStaleAnswer, HitlNoPendingRequest):
            return None
