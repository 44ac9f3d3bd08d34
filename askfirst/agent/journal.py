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


class Journal:
    """One thread's pen: it knows the fence it writes under, and takes the lease when it has to.

    A wait for a person gives the lease back with the step that opens the request; the next step takes it
    again, and fails if another worker has been at the thread meanwhile.

    After a write that failed nothing more is written: a step without the one before it would be a hole in the
    transcript. A step that no store could keep (`InvalidStep`) was not sent, and the lease is held as before.

    A step need not be waited for (``wait=False``) if what follows does no harm should it fail, such as asking
    the model. The next one raises its failure, and is not written then either: the fence did not move. Somebody
    else may have moved it, under the same owner's name even, if the step was to take the lease, or the lease may
    have lapsed: then the next one waits for it (``lags``).
    """

    __slots__ = (
        "_behind",
        "_caller",
        "_checkpointer",
        "_failure",
        "_fence",
        "_holds",
        "_parent",
        "_patience",
        "_pen",
        "_sent",
        "_takes_lease",
        "_thread_id",
        "_under_way",
        "_written_at",
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
        self._fence: int = fence
        self._holds = False
        self._parent = parent
        self._caller = caller
        self._failure: Exception | None = None
        self._under_way: list[asyncio.Future[int]] = []
        self._takes_lease = False
        self._written_at = time.monotonic()
        self._pen = asyncio.Lock()
        self._sent: Step | None = None
        lease_seconds: float = getattr(checkpointer, "lease_seconds", LEASE_SECONDS)
        self._patience = lease_seconds / 3
        self._behind: WritesBehind | None = getattr(checkpointer, "writes_behind", None)

    @property
    def fence(self) -> int:
        """The fence that the last step left the thread at."""
        return self._fence

    @property
    def failed(self) -> bool:
        """Whether a write has failed, and nothing can be written any more."""
        return self._failure is not None

    @property
    def failure(self) -> Exception | None:
        """What went wrong with it."""
        return self._failure

    @property
    def holds(self) -> bool:
        """Whether the thread is leased to this run."""
        return self._holds

    def has_sent(self, step: Step) -> bool:
        """Whether this step went to the store before `write` was cancelled; then it is written, or we `failed`."""
        return self._sent is step

    async def write(self, step: Step, *, wait: bool = True) -> None:
        """Write a step whole, or raise (`LeaseHeld`, `LeaseLost`) and write nothing, now or later.

        Whoever is cancelled meanwhile can find out what became of it: see `has_sent`.
        """
        if self._failure is not None:
            raise self._failure
        if not wait and self._behind is not None and base.hook is None:
            whole = self._whole(step)
            under_way = self._behind.begin_commit(
                self._thread_id, whole, fence=self._fence, acquire=not self._holds
            )
            self._sent = step
            self._under_way.append(under_way)
            self._takes_lease = not self._holds and bool(self._fence)
            self._fence, self._holds = whole.first_fence or self._fence + 1, not step.release
            if not self._behind.keeps_order:
                await asyncio.sleep(0)  # so that it is on its way before the model is asked
            return
        await self._pen.acquire()  # not `async with`, which takes two coroutines more for every step
        try:
            if self._fence or self._caller is None:
                await self._commit(step)
            else:
                async with self._caller._pen:  # so that its fence stands still meanwhile
                    await self._commit(step)
        finally:
            self._pen.release()

    def _whole(self, step: Step) -> Step:
        """The step as sent: a thread's first carries the parent's id, the first fence and the caller's fence."""
        if self._fence:
            return step
        held = 0 if self._caller is None else self._caller.fence
        return step._replace(parent_thread_id=self._parent, first_fence=first_fence(), parent_fence=held)

    async def confirm(self, run_id: str) -> None:
        """Make sure that the thread is still leased to this run, if another may have taken it over since it wrote.

        Bodies that start at the same time all ask; one of them writes. Raises `LeaseLost`.
        """
        async with self._pen:
            if self.may_have_lapsed:
                await self._commit(Step(run_id))

    async def _commit(self, step: Step) -> None:
        if self._failure is not None:
            raise self._failure
        self._sent, step = step, self._whole(step)
        then, acquire = step.first_fence or self._fence + 1, not self._holds
        earlier, self._under_way = self._under_way, []
        began = time.monotonic()
        try:
            self._fence = await self._checkpointer.commit(
                self._thread_id, step, fence=self._fence, acquire=acquire
            )
        except asyncio.CancelledError as cancelled:
            # The write is decided by now, and made unless its failure is the cause. Then there is nothing to give
            # back: the next fence, and the lease, may be those of another worker, of the same owner even.
            if isinstance(cancelled.__cause__, Exception):
                await self._fail(cancelled.__cause__, step, acquire=acquire)
            else:
                self._fence, self._holds = then, not step.release
            raise
        except InvalidStep:
            self._under_way, self._sent = earlier, None
            raise
        except Exception as failure:
            # Those that followed it failed with it; what it says is why.
            failures = [it.exception() for it in earlier if it.done()]
            cause = next((it for it in failures if isinstance(it, Exception)), failure)
            await self._fail(cause, step, acquire=acquire)
            raise cause from None
        self._holds = not step.release
        self._written_at = began  # for the lease is as old as that

    async def _fail(self, why: Exception, step: Step, *, acquire: bool) -> None:
        """Write no more; a lease that is ours, because all that failed is that a person was first, is given back."""
        self._failure, self._holds = why, False
        if not acquire and isinstance(why, HitlStaleAnswer):
            await self._give_back(step.run_id)

    async def _give_back(self, run_id: str) -> None:
        """Let the next worker have the thread at once: a person was first, and nothing of this run is written."""
        try:
            await self._checkpointer.commit(self._thread_id, Step(run_id, release=True), fence=self._fence)
        except (LeaseLost, LeaseHeld):
            pass  # then it is another's already
        except Exception:
            logger.exception("the lease of thread %s could not be given back; it will lapse", self._thread_id)

    @property
    def may_have_lapsed(self) -> bool:
        """Whether so much time has passed since the last step that another may have taken the thread over."""
        return self._holds and time.monotonic() - self._written_at > self._patience

    @property
    def lags(self) -> bool:
        """Whether a step is under way that the next one is to wait for, lest that be written without it."""
        if not self._under_way or self._behind is None:
            return False
        is_sure = self._behind.keeps_order and not self._takes_lease
        return not is_sure or time.monotonic() - self._written_at > self._patience

    async def catch_up(self) -> None:
        """Wait for the steps that nobody has waited for."""
        while self._under_way:
            try:
                await self._under_way[0]
            except Exception as failure:
                self._failure, self._holds = failure, False
                self._under_way.clear()
                raise
            self._under_way.pop(0)

    async def expire(self, known: StoredRequest) -> StoredRequest:
        """A pending request of the thread as it stands, timed out if its deadline has passed."""
        try:
            return await self._checkpointer.expire(self._thread_id, known.question_id)
        except HitlNoPendingRequest:
            return known  # it went with its thread, as whoever writes to that will find

    async def cancel(self, question_id: str, why: str) -> StoredRequest | None:
        """End a request of the thread, whoever holds the lease; None if somebody settled it before."""
        try:
            return await self._checkpointer.cancel(self._thread_id, question_id, why)
        except (HitlStaleAnswer, HitlNoPendingRequest):
            return None
