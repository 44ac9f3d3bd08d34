"""A channel whose requests outlive the process: for services."""

from __future__ import annotations

from typing import Any, Protocol, cast

from assent.agent.asking import current_asking
from assent.checkpointer.base import Checkpointer
from assent.clock import Clock
from assent.errors import HitlDurabilityNotGuaranteed, HitlError, InvalidAgent
from assent.hitl.memory import InMemoryChannel
from assent.requests import ChannelHost, HitlRequest, StoredRequest, same_question


class RequestKeeper(Protocol):
    """The least that a checkpointer of one's own must offer to a `CheckpointedChannel`."""

    async def save_pending_request(self, thread_id: str, request: HitlRequest | None) -> None:
        """Keep a thread's pending request; None clears it."""
        ...

    async def load_pending_request(self, thread_id: str) -> HitlRequest | None:
        """The thread's pending request."""
        ...


class CheckpointedChannel(InMemoryChannel):
    """Asks through a checkpointer: any process may answer, hours later, and whoever waits then wakes.

    With one of Assent's checkpointers requests are settled in the store, once, whoever answers. A checkpointer
    of one's own needs only ``save_pending_request`` and ``load_pending_request``; the answer then comes through
    this channel or through ``agent.respond``.

    Inside the body of a custom tool asking raises `HitlDurabilityNotGuaranteed`, for after a restart the body
    begins anew; ``allow_inside_custom_tool=True`` accepts that.
    """

    def __init__(
        self,
        *,
        checkpointer: Checkpointer | RequestKeeper,
        thread_id: str,
        default_timeout: float | None = None,
        allow_inside_custom_tool: bool = False,
        clock: Clock | None = None,
    ) -> None:
        for needed in ("save_pending_request", "load_pending_request"):
            if not callable(getattr(checkpointer, needed, None)):
                raise HitlError(f"a CheckpointedChannel needs a checkpointer with {needed}()")
        super().__init__(default_timeout, clock=clock)
        self._thread_id = thread_id
        self._allow_inside_custom_tool = allow_inside_custom_tool
        self._keeper = cast(RequestKeeper, checkpointer)
        settles = callable(getattr(checkpointer, "settle", None))
        self._checkpointer = cast(Checkpointer, checkpointer) if settles else None
        self._is_shared = settles

    @property
    def thread_id(self) -> str:
        """The thread that this channel is for."""
        return self._thread_id

    @property
    def checkpointer(self) -> Checkpointer | None:
        """The checkpointer, if it is one that settles requests itself."""
        return self._checkpointer

    def bind(self, host: ChannelHost) -> None:
        """Belong to an agent; its thread and this channel's must be the same."""
        if host.thread_id != self.thread_id:
            raise InvalidAgent(
                f"the channel is for thread {self.thread_id!r} and the agent for {host.thread_id!r}; give both one id"
            )
        super().bind(host)

    async def open_request(self) -> HitlRequest | None:
        """The thread's open request, as the store knows it."""
        return await self._keeper.load_pending_request(self.thread_id)

    async def _record(self, request: HitlRequest) -> StoredRequest:
        asking = current_asking()
        if asking is not None and asking.place == "tool" and not self._allow_inside_custom_tool:
            raise HitlDurabilityNotGuaranteed(asking.tool_name)
        request = request.model_copy(update={"thread_id": self.thread_id})
        if self._host is not None and (stored := await self._host.record(request)) is not None:
            return stored
        if self.checkpointer is None:
            return await self._record_with_keeper(request)
        known = await self.checkpointer.request(self.thread_id, request.question_id)
        if known is not None and same_question(known.request, request):
            return known
        await self.checkpointer.save_pending_request(self.thread_id, request)
        return StoredRequest(request, self.thread_id, None, "pending")

    async def _record_with_keeper(self, request: HitlRequest) -> StoredRequest:
        known = await self._keeper.load_pending_request(self.thread_id)
        if known is not None and known.question_id == request.question_id and same_question(known, request):
            request = known
        else:
            await self._keeper.save_pending_request(self.thread_id, request)
        return await super()._record(request)

    async def _settle(self, question_id: str, answer: Any, by: str | None, via: str | None) -> StoredRequest:
        if self.checkpointer is not None:
            return await self.checkpointer.settle(self.thread_id, question_id, answer, by=by, via=via)
        await self._recall(question_id)
        stored = await super()._settle(question_id, answer, by, via)
        await self._keeper.save_pending_request(self.thread_id, None)
        return stored

    async def _cancel(self, question_id: str, reason: str) -> StoredRequest:
        if self.checkpointer is not None:
            return await self.checkpointer.cancel(self.thread_id, question_id, reason)
        await self._recall(question_id)
        stored = await super()._cancel(question_id, reason)
        await self._keeper.save_pending_request(self.thread_id, None)
        return stored

    async def _expire(self, question_id: str) -> StoredRequest:
        if self.checkpointer is not None:
            return await self.checkpointer.expire(self.thread_id, question_id)
        stored = await super()._expire(question_id)
        if stored.status != "pending":
            await self._keeper.save_pending_request(self.thread_id, None)
        return stored

    async def _settled_elsewhere(self, question_id: str) -> StoredRequest:
        if self.checkpointer is None:
            return await super()._settled_elsewhere(question_id)
        return await self.checkpointer.settled(self.thread_id, question_id)

    async def _recall(self, question_id: str) -> None:
        """Know a request that another process opened: a plain keeper only keeps it."""
        known = await self._keeper.load_pending_request(self.thread_id)
        if known is not None and known.question_id == question_id:
            await super()._record(known)
