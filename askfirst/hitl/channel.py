"""The base class of channels: one request at a time is opened, waited for, and settled once."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast
from weakref import WeakSet

from askfirst.agent.asking import outcome_of
from askfirst.agent.channel_host import Host, host_of, in_turn
from askfirst.agent.context import current, current_asking
from askfirst.agent.emitter import NOTHING
from askfirst.agent.question_ids import first_id, named
from askfirst.channels import DEFAULT, ChannelHost
from askfirst.checkpointer.base import Checkpointer
from askfirst.clock import Clock, SystemClock
from askfirst.errors import HitlConcurrencyError, HitlControlException, HitlStaleAnswer
from askfirst.hitl.inputs import (
    check_signal,
    checked_choices,
    checked_details,
    checked_digest,
    checked_payload,
    checked_questions,
    checked_seconds,
)
from askfirst.hitl.wait import Listeners, Slot, Subscription, hitl_span, settling
from askfirst.messages import JsonObject
from askfirst.requests import (
    Answers,
    ApproveAnswer,
    ApproveRequest,
    ConfirmRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Question,
    StoredRequest,
    fit_answer,
)

_REMEMBERED = 1000
"""How many announced requests a channel remembers: more than a resumed run ever asks again."""


class Channel(ABC):
    """The verbs of a channel, and the wait for an answer; subclasses differ in where they keep requests.

    A subclass implements how a request is recorded (`_record`), settled (`_settle`, `_cancel`, `_expire`) and
    forgotten once its asker has the outcome (`_forget`).
    """

    def __init__(self, *, default_timeout: float | None = None, clock: Clock | None = None) -> None:
        self._default_timeout = checked_seconds(default_timeout)
        self._clock: Clock = clock or SystemClock()
        self._host: ChannelHost | None = None
        self._slot: Slot | None = None
        self._subscriptions: WeakSet[Subscription] | None = None
        self._announced: dict[tuple[str | None, str], None] = {}
        self._hosts: WeakSet[ChannelHost] = WeakSet()
        self._listeners = Listeners()

    # The agent's side.

    async def confirm(
        self,
        prompt: str,
        *,
        details: Mapping[str, Any] | None = None,
        timeout: float | None = DEFAULT,
        signal: asyncio.Event | None = None,
    ) -> bool:
        """Ask yes or no."""
        payload = checked_payload(ConfirmRequest, prompt=prompt, details=checked_details(details))
        return cast(bool, await self._ask_in_turn(payload, timeout, signal))

    async def approve(
        self,
        tool_name: str,
        tool_call_id: str,
        args: Mapping[str, Any],
        *,
        details: Mapping[str, Any] | None = None,
        timeout: float | None = DEFAULT,
        signal: asyncio.Event | None = None,
    ) -> ApproveAnswer:
        """Ask whether a tool may run with these arguments; the answer is bound to them."""
        payload = checked_payload(
            ApproveRequest,
            tool_name=tool_name,
            tool_call_id=tool_call_id,
            digest=checked_digest(tool_name, args),
            args=dict(args),
            details=checked_details(details),
            args_schema=self._args_schema(tool_name),
            display=self._words(tool_name, args),
        )
        return cast(ApproveAnswer, await self._ask_in_turn(payload, timeout, signal))

    async def ask(
        self,
        questions: Sequence[Question],
        *,
        timeout: float | None = DEFAULT,
        signal: asyncio.Event | None = None,
    ) -> Answers:
        """Ask some questions; the answer has a string, or a list of them, for each key."""
        return cast(Answers, await self._ask_in_turn(checked_questions(questions), timeout, signal))

    async def escalate(
        self,
        prompt: str,
        *,
        choices: Sequence[str] = ("retry", "skip", "abort"),
        details: Mapping[str, Any] | None = None,
        timeout: float | None = DEFAULT,
        signal: asyncio.Event | None = None,
    ) -> EscalateAnswer:
        """Ask what to do about something that went wrong."""
        shown = checked_details(details)
        payload = checked_payload(
            EscalateRequest,
            prompt=prompt,
            choices=checked_choices(choices),
            details=shown,
            args_schema=self._args_schema((shown or {}).get("tool_name")),
            display=self._words((shown or {}).get("tool_name"), (shown or {}).get("args")),
        )
        return cast(EscalateAnswer, await self._ask_in_turn(payload, timeout, signal))

    # The host's side.

    @property
    def pending(self) -> HitlRequest | None:
        """The request that is waited for in this process, if any."""
        slot = self._slot
        return slot.request if slot is not None and slot.announced and not slot.settled.done() else None

    async def open_request(self, thread_id: str | None = None) -> HitlRequest | None:
        """The open request, whether or not a run in this process waits for it.

        Where several agents share the channel, a request of ``thread_id`` comes first.
        """
        return self.pending

    def subscribe(self) -> AsyncIterator[HitlRequest]:
        """The requests as they are opened, beginning with the pending one."""
        subscription = Subscription()
        if self._subscriptions is None:
            self._subscriptions = WeakSet()
        self._subscriptions.add(subscription)
        if self.pending is not None:
            subscription.queue.put_nowait(self.pending)
        return subscription

    async def answer(
        self,
        question_id: str,
        answer: Any,
        *,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
    ) -> None:
        """Answer a request, with the answer's model or with plain JSON.

        ``digest`` is the digest of the request that was shown (`HitlRequest.digest`): if another request has the id
        by now, the answer is stale. An answer without ``digest`` counts only for the first request under the id.
        Raises `HitlStaleAnswer` if the request is not pending, and `HitlInvalidAnswer` if the answer does not fit;
        the request then stays pending.
        """
        with settling(self._slot):
            self._wake(await self._settle(question_id, answer, by, via, digest))

    async def cancel(self, question_id: str, reason: str = "cancelled") -> None:
        """Cancel a request; the waiting run gets `HitlCancelled`."""
        with settling(self._slot):
            self._wake(await self._cancel(question_id, reason))

    # The agent that the channel belongs to.

    @property
    def thread_id(self) -> str | None:
        """The thread that this channel was made for; None if it serves any thread."""
        return None

    @property
    def checkpointer(self) -> Checkpointer | None:
        """The checkpointer in which the channel stores and settles its requests; None if it does not."""
        return None

    def bind(self, host: ChannelHost) -> None:
        """Bind the channel to an agent, whose listeners are notified of requests."""
        self._host = host
        self._hosts.add(host)

    def interrupt(
        self, signal: HitlControlException, *, after: Callable[[], Awaitable[object]] | None = None
    ) -> HitlRequest | None:
        """Raise a signal in the waiting run, after awaiting ``after``; the request itself stays open."""
        slot = self._slot
        return slot.request if slot is not None and slot.interrupt(signal, after) else None

    def fit(self, request: HitlRequest, answer: Any) -> Any:
        """The answer as its model, checked against the request; edited arguments are checked against the tool."""
        call, check = request.payload.call, None
        slot = self._slot
        asker = slot.asker if slot is not None and slot.request is request else None
        host = None if asker is None else asker.host
        if call is not None and (owner := self._owner(call.tool_name, host)):
            check = owner.args_check(call.tool_name, call)
        return fit_answer(request, answer, check)

    def _args_schema(self, tool_name: Any) -> JsonObject | None:
        """The JSON Schema of a tool's arguments, if the asking agent has that tool."""
        owner = self._owner(tool_name, _asker()) if isinstance(tool_name, str) else None
        return None if owner is None else owner.args_schema(tool_name)

    def _words(self, tool_name: Any, args: Any) -> JsonObject | None:
        """The words of a tool's author for a call, if the asking agent has that tool."""
        owner = self._owner(tool_name, _asker()) if isinstance(tool_name, str) else None
        if owner is None or not isinstance(args, Mapping):
            return None
        return owner.words(tool_name, cast("Mapping[str, Any]", args))

    def _sealed(self, question_id: str, payload: HitlPayload) -> HitlPayload:
        """The payload with its seal, which binds an approval also to the hidden arguments of the call."""
        call = payload.call
        owner = None if call is None else self._owner(call.tool_name, _asker())
        if call is None or owner is None:
            return payload
        return payload.sealed(owner.seal(call, self._kept_seal(owner.thread_id, question_id)))

    def _kept_seal(self, thread_id: str, question_id: str) -> str | None:
        """The seal of an earlier round of a question, if this channel keeps its requests itself."""
        return None

    def _owner(self, tool_name: str, asker: ChannelHost | None) -> ChannelHost | None:
        """The agent that has this tool: the asking agent, or else the agent that the channel is bound to."""
        hosts = (asker, self._host)
        return next((host for host in hosts if host is not None and host.args_check(tool_name)), None)

    # Where the requests are kept.

    async def _known(self, host: ChannelHost | None, question_id: str) -> StoredRequest | None:
        """The earlier request with this id, from the ``host``'s open calls or from this channel."""
        return await host.known(question_id) if isinstance(host, Host) else None

    @abstractmethod
    async def _record(self, request: HitlRequest, host: ChannelHost | None) -> StoredRequest:
        """Record a request of the ``host`` (if any), or return the one recorded before, which may be settled."""

    @abstractmethod
    async def _settle(
        self, question_id: str, answer: Any, by: str | None, via: str | None, digest: str | None
    ) -> StoredRequest: ...

    @abstractmethod
    async def _cancel(self, question_id: str, reason: str) -> StoredRequest: ...

    @abstractmethod
    async def _expire(self, question_id: str) -> StoredRequest:
        """Settle a request as timed out if its deadline has passed; returns its current state."""

    async def _settled_elsewhere(self, question_id: str) -> StoredRequest:
        """Wait until another process settles the request. If no other process can, this never returns."""
        return await asyncio.get_running_loop().create_future()

    @abstractmethod
    def _forget(self, stored: StoredRequest) -> None:
        """Forget a request whose asker has the outcome."""

    _is_shared = False
    """Whether another process may settle a request."""

    # The wait.

    async def _ask_in_turn(
        self, payload: HitlPayload, timeout: float | None, signal: asyncio.Event | None
    ) -> Any:
        """Wait for the asking agent's turn on the channel, because a channel asks one thing at a time; then
        `_ask`."""
        seconds = self._default_timeout if timeout is DEFAULT else checked_seconds(timeout)
        if signal is not None:
            check_signal(signal)
        return await in_turn(self, lambda: self._ask(payload, seconds, signal))

    async def _ask(self, payload: HitlPayload, timeout: float | None, signal: asyncio.Event | None) -> Any:
        """Open a request, wait until it is settled, and return the answer or raise the outcome's exception."""
        self._check_free()
        host = host_of(self, self._host, self._hosts)
        asked = await self._new_request(payload, timeout, host)
        self._check_free()  # another task may have begun to ask while the id was looked up
        slot = self._slot = Slot(asked, current.get().session)
        key = (asked.thread_id, asked.question_id)
        with hitl_span(asked) as span:
            try:
                if key not in self._announced:
                    span.begin()
                stored = await self._recorded(slot, host)
                span.from_resume = stored.status != "pending" and stored.request is not asked
                if span.from_resume and key in self._announced:
                    return outcome_of(stored, is_found=True)
                self._announced.pop(key, None)
                span.begin()
                if stored.status == "pending":
                    slot.announced = True
                    slot.leave_with_tree()
                    stored = await self._wait(slot, signal, self._announce(stored.request, host))
            except HitlControlException:
                await slot.await_after()
                raise
            finally:
                if self._slot is slot:
                    self._slot = None
                slot.close()
            self._forget(stored)
            span.settled(stored)
            self._announced[key] = None
            if len(self._announced) > _REMEMBERED:
                del self._announced[next(iter(self._announced))]
            if host is not None:
                await host.announce_settled(stored)
            return span.outcome(outcome_of(stored, is_found=span.from_resume))

    def _check_free(self) -> None:
        """Raise `HitlConcurrencyError` if this channel waits for a request."""
        if self._slot is not None and not self._slot.settled.done():
            raise HitlConcurrencyError(self._slot.request.question_id)

    async def _new_request(
        self, payload: HitlPayload, timeout: float | None, host: ChannelHost | None
    ) -> HitlRequest:
        """A new request. Within a run, its id is derived, so that the resumed run computes the same id."""
        question_id = first_id(payload)
        payload = self._sealed(question_id, payload)
        if current_asking() is not None and payload.gated_call is None:
            question_id = await named(question_id, payload, lambda it: self._known(host, it))
        return HitlRequest(
            question_id=question_id,
            thread_id=host.thread_id if host is not None else None,
            payload=payload,
            created_at=self._clock.now(),
            timeout_seconds=timeout,
            agent_path=None if host is None or not host.agent_path else list(host.agent_path),
        )

    async def _recorded(self, slot: Slot, host: ChannelHost | None) -> StoredRequest:
        """Record the request.

        If it was recorded before and its deadline has passed, it is settled as timed out, without an announcement.
        """
        stored = await self._record(slot.request, host)
        if stored.status != "pending":
            return stored
        is_new = stored.request.created_at == slot.request.created_at
        slot.request, expires_at = stored.request, stored.request.expires_at
        if is_new or expires_at is None or expires_at > self._clock.now():
            return stored
        return await self._expire(stored.question_id)

    async def _wait(
        self, slot: Slot, signal: asyncio.Event | None, announcement: Awaitable[None]
    ) -> StoredRequest:
        """Wait for an answer, a cancel, the deadline, the signal or an interruption, whichever comes first."""
        helpers: list[asyncio.Task[None]] = []
        signal_watch: asyncio.Task[None] | None = None
        if slot.request.expires_at is not None:
            helpers.append(asyncio.create_task(self._watch_deadline(slot)))
        if signal is not None:
            helpers.append(signal_watch := asyncio.create_task(self._watch_signal(slot, signal)))
        if self._is_shared:
            helpers.append(asyncio.create_task(self._watch_elsewhere(slot)))
        try:
            if announcement is not NOTHING:
                await self._listeners.wait(slot, announcement)
            stored = await slot.settled
            if signal_watch is not None and slot.signalled and stored.status == "cancelled":
                await asyncio.wait([signal_watch])  # this task knows whether the signal was the cause
            return slot.aborted or stored
        finally:
            for helper in helpers:
                helper.cancel()
            if helpers:
                await asyncio.wait(helpers)

    async def _watch_deadline(self, slot: Slot) -> None:
        """Settle the request as timed out when its deadline passes."""
        expires_at = cast(float, slot.request.expires_at)
        with slot.passing_errors():
            while True:
                await self._clock.sleep(max(0.0, expires_at - self._clock.now()))
                stored = await self._expire(slot.request.question_id)
                if stored.status != "pending":
                    slot.settle(stored)
                    return
                await self._clock.sleep(0.01)  # the store's clock is a little behind ours

    async def _watch_signal(self, slot: Slot, signal: asyncio.Event) -> None:
        """Cancel the request when the signal is set; the waiting run gets `HitlAborted`."""
        with slot.passing_errors():
            await signal.wait()
            slot.signalled = True
            with suppress(
                HitlStaleAnswer
            ):  # the request is settled already; whoever settled it wakes the slot
                stored = await self._cancel(slot.request.question_id, "its signal was set")
                slot.aborted = replace(stored, status="aborted")
                slot.settle(slot.aborted)

    async def _watch_elsewhere(self, slot: Slot) -> None:
        """End the wait when another process settles the request."""
        with slot.passing_errors():
            slot.settle(await self._settled_elsewhere(slot.request.question_id))

    def _wake(self, stored: StoredRequest) -> None:
        """End the wait for a request that was settled, if a run in this process waits for it."""
        if self._slot is not None and self._slot.request.question_id == stored.question_id:
            self._slot.settle(stored)

    def _announce(self, request: HitlRequest, host: ChannelHost | None) -> Awaitable[None]:
        """Notify subscriptions and the agent's listeners of a request; the result awaits the async listeners."""
        for subscription in self._subscriptions or ():
            subscription.queue.put_nowait(request)
        return NOTHING if host is None else host.announce(request)


def _asker() -> ChannelHost | None:
    """The agent in whose run the current code runs; None outside of a run."""
    session = current.get().session
    return None if session is None else session.host
