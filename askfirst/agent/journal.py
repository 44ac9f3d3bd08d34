"""Writing a run's steps to a checkpointer, under the thread's lease."""

from __future__ import annotations

import asyncio
import time

from askfirst.agent.emitter import logger
from askfirst.checkpointer import base
from askfirst.checkpointer.base import LEASE_SECONDS, Checkpointer, Step, WritesBehind
from askfirst.errors import HitlNoPendingRequest, HitlStaleAnswer, InvalidStep, LeaseHeld, LeaseLost
from askfirst.ids import first_fence
from askfirst.requests import StoredRequest


class Lease:
    """The lease of a thread as its writer knows it."""

    __slots__ = ("_patience", "fence", "holds", "written_at")

    def __init__(self, fence: int, patience: float) -> None:
        self.fence: int = fence
        """The fence that the last step left the thread at."""
        self.holds = False
        """Whether the thread is leased to this run."""
        self.written_at = time.monotonic()
        """When the last step was begun: the lease runs from then on."""
        self._patience = patience

    @property
    def is_old(self) -> bool:
        """Whether the last step is so long ago that a lease taken with it may have lapsed."""
        return time.monotonic() - self.written_at > self._patience

    @property
    def may_have_lapsed(self) -> bool:
        """Whether the lease is held and may have lapsed."""
        return self.holds and self.is_old


class Journal:
    """The writer of one thread: it keeps the fence, and takes the lease when a step needs it.

    The step that opens a request releases the lease. The next step takes the lease again, and fails if another
    worker has written to the thread meanwhile.

    After a failed write nothing more is written, because a later step would leave a hole in the transcript. A step
    that the store refuses (`InvalidStep`) was not sent, and the lease is held as before.

    A step may be written behind (``wait=False``) if what follows has no effect, such as a model call. The next step
    raises the failure of that step, and is not written either: the fence did not move. If the step written behind
    takes the lease, or the lease may have lapsed, another worker may have moved the fence, even under the same
    owner's name. Then the next step waits for it first (``lags``).
    """

    __slots__ = (
        "_behind",
        "_caller",
        "_checkpointer",
        "_parent",
        "_pen",
        "_sent",
        "_takes_lease",
        "_thread_id",
        "_under_way",
        "failure",
        "lease",
    )

    def __init__(
        self,
        checkpointer: Checkpointer,
        thread_id: str,
        fence: int,
        parent: str | None = None,
        caller: Journal | None = None,
    ) -> None:
        self._checkpointer = checkpointer
        self._thread_id = thread_id
        self._parent = parent
        self._caller = caller
        self.lease = Lease(fence, getattr(checkpointer, "lease_seconds", LEASE_SECONDS) / 3)
        self.failure: Exception | None = None
        """The error of the write that failed, if one did: nothing can be written any more."""
        self._under_way: list[asyncio.Future[int]] = []
        self._takes_lease = False
        self._pen = asyncio.Lock()
        self._sent: Step | None = None
        self._behind: WritesBehind | None = getattr(checkpointer, "writes_behind", None)

    def has_sent(self, step: Step) -> bool:
        """Whether this step was sent before `write` was cancelled; then it is written, or ``failure`` is set."""
        return self._sent is step

    async def write(self, step: Step, *, wait: bool = True) -> None:
        """Write a step in one transaction, or raise (`LeaseHeld`, `LeaseLost`) and never write it.

        If the caller is cancelled meanwhile, `has_sent` tells whether the step was sent.
        """
        if self.failure is not None:
            raise self.failure
        if not wait and self._behind is not None and base.hook is None:
            whole = self._whole(step)
            under_way = self._behind.begin_commit(
                self._thread_id, whole, fence=self.lease.fence, acquire=not self.lease.holds
            )
            self._sent = step
            self._under_way.append(under_way)
            self._takes_lease = not self.lease.holds and bool(self.lease.fence)
            self.lease.fence, self.lease.holds = whole.first_fence or self.lease.fence + 1, not step.release
            if not self._behind.keeps_order:
                await asyncio.sleep(0)  # so that the step is sent before the model is asked
            return
        await self._pen.acquire()  # not `async with`, which takes two coroutines more for every step
        try:
            if self.lease.fence or self._caller is None:
                await self._commit(step)
            else:
                async with self._caller._pen:  # so that the caller's fence does not move meanwhile
                    await self._commit(step)
        finally:
            self._pen.release()

    def _whole(self, step: Step) -> Step:
        """The step as sent: a thread's first carries the parent's id, the first fence and the caller's fence."""
        if self.lease.fence:
            return step
        held = 0 if self._caller is None else self._caller.lease.fence
        return step._replace(parent_thread_id=self._parent, first_fence=first_fence(), parent_fence=held)

    async def confirm(self, run_id: str) -> None:
        """Check with an empty step that this run still holds the lease, if the lease may have lapsed.

        Of bodies that start together, the first writes the step for all. Raises `LeaseLost`.
        """
        async with self._pen:
            if self.lease.may_have_lapsed:
                await self._commit(Step(run_id))

    async def _commit(self, step: Step) -> None:
        if self.failure is not None:
            raise self.failure
        self._sent, step = step, self._whole(step)
        then, acquire = step.first_fence or self.lease.fence + 1, not self.lease.holds
        earlier, self._under_way = self._under_way, []
        began = time.monotonic()
        try:
            self.lease.fence = await self._checkpointer.commit(
                self._thread_id, step, fence=self.lease.fence, acquire=acquire
            )
        except asyncio.CancelledError as cancelled:
            # The transaction has ended: it is committed, unless its failure is the cause of the cancellation. After
            # a failure no lease is released: fence and lease may be another worker's, even of the same owner.
            if isinstance(cancelled.__cause__, Exception):
                await self._fail(cancelled.__cause__, step, acquire=acquire)
            else:
                self.lease.fence, self.lease.holds = then, not step.release
            raise
        except InvalidStep:
            self._under_way, self._sent = earlier, None
            raise
        except Exception as failure:
            # If an earlier step written behind failed, that failure is the cause.
            failures = [it.exception() for it in earlier if it.done()]
            cause = next((it for it in failures if isinstance(it, Exception)), failure)
            await self._fail(cause, step, acquire=acquire)
            raise cause from None
        self.lease.holds = not step.release
        self.lease.written_at = began  # the lease runs from the start of the write

    async def _fail(self, why: Exception, step: Step, *, acquire: bool) -> None:
        """Stop writing. If the step failed only because a person had answered first, release the lease."""
        self.failure, self.lease.holds = why, False
        if not acquire and isinstance(why, HitlStaleAnswer):
            await self._release(step.run_id)

    async def _release(self, run_id: str) -> None:
        """Release the lease with an empty step, so that the next worker need not wait for it to lapse."""
        try:
            await self._checkpointer.commit(
                self._thread_id, Step(run_id, release=True), fence=self.lease.fence
            )
        except (LeaseLost, LeaseHeld):
            pass  # another worker has the lease
        except Exception:
            logger.exception("the lease of thread %s could not be released; it will lapse", self._thread_id)

    @property
    def lags(self) -> bool:
        """Whether the next step has to wait for a step written behind: it could be written without that one."""
        if not self._under_way or self._behind is None:
            return False
        is_sure = self._behind.keeps_order and not self._takes_lease
        return not is_sure or self.lease.is_old

    async def catch_up(self) -> None:
        """Wait for the steps written behind; raises the failure of the first that failed."""
        while self._under_way:
            try:
                await self._under_way[0]
            except Exception as failure:
                self.failure, self.lease.holds = failure, False
                self._under_way.clear()
                raise
            self._under_way.pop(0)

    async def expire(self, known: StoredRequest) -> StoredRequest:
        """A pending request as the store has it now; settled as timed out if its deadline has passed."""
        try:
            return await self._checkpointer.expire(self._thread_id, known.question_id)
        except HitlNoPendingRequest:
            return known  # the thread was deleted; the next step fails for that

    async def cancel(self, question_id: str, why: str) -> StoredRequest | None:
        """Cancel a request, whoever holds the lease; None if it was settled before."""
        try:
            return await self._checkpointer.cancel(self._thread_id, question_id, why)
        except (HitlStaleAnswer, HitlNoPendingRequest):
            return None
