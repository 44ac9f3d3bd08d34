"""The ledger of the gate: one decision and one effect for each key, kept in a store.

A key's rows are those of a thread of its own: the call and its result are messages, the decision is a request, the
body is an effect. The thread's lease is the grant: whoever holds it may run the body, and its heartbeat keeps the
grant alive. So everything that holds for an agent's calls holds here: the same transactions, the same fences.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from askfirst.agent.asking import CHOICES
from askfirst.checkpointer.base import Checkpointer, RunRecord, Step, StoredEffect, StoredThread
from askfirst.clock import Clock
from askfirst.concurrency import first_of
from askfirst.errors import (
    GrantLost,
    HitlError,
    HitlStaleAnswer,
    KeyConflict,
    LeaseHeld,
    LeaseLost,
    NotApproved,
)
from askfirst.gate.action import Action
from askfirst.gate.key_state import (
    CALL,
    RUN,
    call_message,
    decided,
    doubt_answer,
    doubt_id,
    doubt_of,
    has_call,
    idempotency_key,
    key_state,
    result_in,
    result_message,
    thread_of,
)
from askfirst.gate.outcomes import Approved, Finished, Granted, InDoubt, Refused, Running, Stored
from askfirst.messages import JsonObject, call_digest
from askfirst.requests import (
    ApproveRequest,
    EscalateRequest,
    HitlRequest,
    StoredRequest,
    approves,
    same_question,
    seal_in,
)

_ATTEMPTS = 10
_REMEMBERED = 10_000
_SLOWEST_LOOK = 1.0
_CLOCKS_APART = 0.01


class Ledger:
    """Decisions and effects by key, over an open checkpointer."""

    def __init__(
        self, checkpointer: Checkpointer, opened: Callable[[StoredRequest], Awaitable[None]], clock: Clock
    ) -> None:
        self._store = checkpointer
        self._clock = clock
        self._opened = opened
        self._grants: dict[str, tuple[int, str]] = {}
        """The fence of each grant that this process holds, and the grant's tool."""
        self._actions: OrderedDict[str, tuple[Action, bool]] = OrderedDict()
        """The call of each key, and whether the policy allows it without a person."""
        self._new: set[str] = set()
        """The keys among them under which nothing is stored yet."""

    # The decision.

    async def open(self, key: str, action: Action, reason: JsonObject | None = None) -> StoredRequest | None:
        """Ask a person about an action, once; returns the request, which may be settled already.

        None if the action was begun before without a request: nothing is left to decide, and `begin` returns its
        result. ``reason`` is what the person is told beside the call. Raises `KeyConflict`.
        """
        self.remember(key, action)
        thread_id = thread_of(key)
        for _ in range(_ATTEMPTS):
            stored = await self._store.load(thread_id)
            known = None if stored is None else stored.requests.get(CALL)
            if known is not None:
                if not approves(known.request, action.digest, action.seal):
                    raise KeyConflict(key)
                return known
            if stored is not None:
                self._check_same(key, stored, action)
                if key_state(stored) != "open":
                    return None
            request = HitlRequest(
                question_id=CALL,
                thread_id=thread_id,
                payload=_payload(action, reason),
                created_at=self._clock.now(),
                timeout_seconds=action.timeout,
            )
            if await self._write(thread_id, stored, Step(RUN, opened=[request], release=True), action):
                found = await self._store.request(thread_id, CALL)
                if found is not None:
                    await self._opened(found)
                    return found
        raise LeaseHeld(thread_id, "other workers, one after another", 0)

    async def decision(self, key: str) -> Approved | Refused | None:
        """What was decided about a key's call; None while nobody has, or nobody was asked."""
        action, is_allowed = self._actions.get(key, (None, False))
        if action is not None and is_allowed:
            return Approved(action.args)
        known = await self._store.request(thread_of(key), CALL)
        if known is None or known.status == "pending":
            return None
        if action is not None:
            return decided(known, action)
        call = known.request.payload.gated_call
        if call is None:
            return None
        seal = seal_in(known.request)
        return decided(known, Action(tool=call.tool_name, args=call.args, seal=seal))

    async def stored(self, key: str) -> StoredThread | None:
        """The rows of a key, which say how it stands; see `askfirst.gate.key_state`."""
        return await self._store.load(thread_of(key))

    async def wait(self, key: str, question_id: str, seconds: float | None) -> StoredRequest | None:
        """Wait until a request of a key is settled; None if the time is over first. A request past its deadline is
        settled as timed out."""
        thread_id, until = thread_of(key), None if seconds is None else time.monotonic() + seconds
        while True:
            known = await self._store.request(thread_id, question_id)
            if known is None or known.status != "pending":
                return known
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            settled = self._store.settled(thread_id, question_id, asked=known.request)
            expires_at = known.request.expires_at
            try:
                if expires_at is None:
                    async with asyncio.timeout(left):
                        return await settled
                due = expires_at - self._clock.now()
                async with asyncio.timeout(left):
                    which, found = await first_of(settled, self._clock.sleep(max(0.0, due)))
            except TimeoutError:
                continue
            if which == 0:
                return found
            expired = await self._store.expire(thread_id, question_id)
            if expired.status != "pending":
                return expired
            await self._clock.sleep(_CLOCKS_APART)  # the store's clock is a little behind ours

    async def put(
        self, key: str, request: HitlRequest, *, resumer: str | None = None, resumes: str | None = None
    ) -> StoredRequest:
        """Ask a question under a key, once; returns the stored request. Raises `KeyConflict`.

        With ``resumer`` the answer makes the continuation of the thread ``resumes`` due.
        """
        thread_id = thread_of(key)
        for _ in range(_ATTEMPTS):
            known = await self._store.request(thread_id, request.question_id)
            if known is not None:
                if not same_question(known.request, request.payload):
                    raise KeyConflict(key)
                return known
            if resumer is None:
                await self._store.save_pending_request(thread_id, request)
            elif not await self._write_question(thread_id, request, resumer, resumes or thread_id):
                continue  # another worker was first
            opened = await self._store.request(thread_id, request.question_id)
            if opened is None:
                raise HitlError(f"the question under the key {key!r} was withdrawn at once")
            await self._opened(opened)
            return opened
        raise LeaseHeld(thread_id, "other workers, one after another", 0)

    async def _write_question(self, thread_id: str, request: HitlRequest, resumer: str, resumes: str) -> bool:
        stored = await self._store.load(thread_id)
        step = Step(RUN, opened=[request], release=True, resumer=resumer, resumes=resumes)
        if stored is None or stored.run is None:
            step = step._replace(run=RunRecord(RUN))
        try:
            fence = 0 if stored is None else stored.fence
            await self._store.commit(thread_id, step, fence=fence, acquire=True)
        except (LeaseHeld, LeaseLost, HitlStaleAnswer):
            return False
        return True

    # The effect.

    def remember(self, key: str, action: Action, *, is_allowed: bool = False, is_new: bool = False) -> None:
        """Remember the call of a key for `begin`. ``is_allowed`` says that the policy allows it without a person.

        ``is_new`` says that the key cannot have been used before, so that nothing has to be looked up.
        """
        self._actions[key] = action, is_allowed
        if is_new:
            self._new.add(key)
        self._actions.move_to_end(key)
        while len(self._actions) > _REMEMBERED:
            forgotten, _ = self._actions.popitem(last=False)
            self._new.discard(forgotten)

    async def begin(
        self, key: str, args: JsonObject, *, is_decided: bool = False, wait: float | None = None
    ) -> Granted | Finished | InDoubt | Refused | Running:
        """Begin a key's body with these arguments: at most one caller is granted it.

        While another process runs the body, this waits for its end, for ``wait`` seconds at most (None is for ever),
        and then gives `Running`. ``is_decided`` says that the caller has read the approval of these arguments from
        the store; else it is looked for here. Raises `NotApproved` and `KeyConflict`.
        """
        action, is_allowed = self._actions.get(key, (None, False))
        if action is None:
            raise HitlError(f"nothing was opened under the key {key!r} in this process; call open() first")
        pause, until = 0.01, None if wait is None else time.monotonic() + wait
        while True:
            stored = None if key in self._new else await self._store.load(thread_of(key))
            self._new.discard(key)
            stands = key_state(stored)
            if stored is not None:
                self._check_same(key, stored, action)
                if (result := result_in(stored)) is not None:
                    return Finished(result)
            if stands == "running":
                if until is not None and time.monotonic() >= until:
                    return Running()
                await asyncio.sleep(pause)
                pause = min(pause * 2, _SLOWEST_LOOK)
                continue
            if not is_decided:
                self._check_approved(key, stored, action, args, is_allowed=is_allowed)
            attempt = self._in_doubt if stands == "in doubt" else self._first
            if (begun := await attempt(key, stored, action, args)) is not None:
                return begun

    async def _first(
        self, key: str, stored: StoredThread | None, action: Action, args: JsonObject
    ) -> Granted | None:
        return await self._start(key, stored, action, args, 1)

    async def finish(self, key: str, ended: Stored) -> None:
        """Record how a granted body ended. Raises `GrantLost` if this process lost the grant meanwhile."""
        fence, tool = self._grant(key)
        status = "completed" if ended.error is None else "failed"
        step = Step(
            RUN,
            messages=[result_message(tool, ended)],
            ended=[CALL],
            run=RunRecord(RUN, status),
            release=True,
        )
        try:
            await self._store.commit(thread_of(key), step, fence=fence)
        except (LeaseLost, LeaseHeld):
            from askfirst.gate.audit import record_late  # brings a database's library

            await record_late(self._store, thread_of(key), ended, fence, self._clock.now())
            raise GrantLost(key) from None

    async def abandon(self, key: str) -> None:
        """Release a grant whose body was interrupted: its effect is in doubt from now on."""
        fence, _ = self._grant(key)
        with suppress(LeaseLost, LeaseHeld):  # then it is in doubt already
            await self._store.commit(thread_of(key), Step(RUN, release=True), fence=fence)

    async def adopt(self, key: str) -> bool:
        """Take over the grant of a body that another process began and released, in order to record its end.

        False if there is none: nothing was begun, its end is on record, or its process still holds the grant.
        """
        if key in self._grants:
            return True
        stored = await self._store.load(thread_of(key))
        if stored is None or key_state(stored) != "in doubt":
            return False
        try:
            fence = await self._store.commit(thread_of(key), Step(RUN), fence=stored.fence, acquire=True)
        except (LeaseLost, LeaseHeld):
            return False
        self._grants[key] = fence, stored.effects[CALL].tool_name
        return True

    async def pause(self, key: str) -> None:
        """End a grant whose body stopped by itself to wait; the next `begin` grants the body again, from its
        start."""
        fence, _ = self._grant(key)
        try:
            await self._store.commit(thread_of(key), Step(RUN, ended=[CALL], release=True), fence=fence)
        except (LeaseLost, LeaseHeld):
            raise GrantLost(key) from None

    def _grant(self, key: str) -> tuple[int, str]:
        grant = self._grants.pop(key, None)
        if grant is None:
            raise HitlError(f"no body was begun under the key {key!r} in this process; call begin() first")
        return grant

    def _check_same(self, key: str, stored: StoredThread, action: Action) -> None:
        """Raise `KeyConflict` if the call on record is another one."""
        for message in stored.messages:
            if message.role == "assistant":
                for call in message.tool_calls:
                    if call_digest(call.name, call.args) != action.digest:
                        raise KeyConflict(key)

    def _check_approved(
        self,
        key: str,
        stored: StoredThread | None,
        action: Action,
        args: JsonObject,
        *,
        is_allowed: bool,
    ) -> None:
        """Raise `NotApproved` unless these very arguments were approved: as they were shown, or as edited."""
        asked = None if stored is None else stored.requests.get(CALL)
        verdict = Approved(action.args) if is_allowed else decided(asked, action)
        if not isinstance(verdict, Approved) or call_digest(action.tool, args) != call_digest(
            action.tool, verdict.args
        ):
            raise NotApproved(key)

    async def _start(
        self, key: str, stored: StoredThread | None, action: Action, args: JsonObject, attempt: int
    ) -> Granted | None:
        """Record that the body begins, and take the lease; None if another worker was first."""
        effect = StoredEffect(CALL, action.tool, call_digest(action.tool, args), action.effect, attempt)
        thread_id = thread_of(key)
        fence = await self._write(thread_id, stored, Step(RUN, started=[effect]), action)
        if not fence:
            return None
        self._grants[key] = fence, action.tool
        return Granted(idempotency_key(key), attempt)

    async def _in_doubt(
        self, key: str, stored: StoredThread | None, action: Action, args: JsonObject
    ) -> Granted | InDoubt | Refused | None:
        """Handle a body whose end is unknown: begin it again if that is harmless, or if a person decides so."""
        if stored is None:
            return None
        effect, known = doubt_of(stored)
        if "once" not in (effect.effect, action.effect) and effect.digest == call_digest(action.tool, args):
            return await self._start(key, stored, action, args, effect.attempt + 1)
        answer = doubt_answer(known)
        if isinstance(answer, Refused):
            return answer
        if answer is not None:
            again = args if answer.modified_params is None else answer.modified_params
            granted = await self._start(key, stored, action, again, effect.attempt + 1)
            return None if granted is None else replace(granted, edited=answer.modified_params)
        if known is not None:
            return InDoubt(known)
        request = HitlRequest(
            question_id=doubt_id(effect.attempt),
            thread_id=stored.thread_id,
            payload=_doubt(action, args, effect.attempt, idempotency_key(key)),
            created_at=self._clock.now(),
            agent_path=list(action.agent_path) or None,
        )
        if not await self._write(stored.thread_id, stored, Step(RUN, opened=[request], release=True), action):
            return None
        found = await self._store.request(stored.thread_id, request.question_id)
        if found is None:
            return None
        await self._opened(found)
        return InDoubt(found)

    async def _write(self, thread_id: str, stored: StoredThread | None, step: Step, action: Action) -> int:
        """Write a step on a key's thread, whose lease is free; returns the fence, or 0 if another worker was
        first."""
        if stored is None or not has_call(stored.messages):
            step = step._replace(messages=[call_message(action)])
        if stored is None or stored.run is None:
            step = step._replace(run=RunRecord(RUN))
        if step.opened and action.resumer is not None:
            step = step._replace(resumer=action.resumer, resumes=action.resumes or thread_id)
        try:
            fence = 0 if stored is None else stored.fence
            return await self._store.commit(thread_id, step, fence=fence, acquire=True)
        except (LeaseHeld, LeaseLost, HitlStaleAnswer):
            return 0


def _payload(action: Action, reason: JsonObject | None) -> ApproveRequest:
    details: JsonObject = dict(reason or {})
    if action.principal != "*":
        details["principal"] = action.principal
    if action.agent_path:
        details["agent_path"] = list(action.agent_path)
    if action.to is not None:
        details["to"] = action.to
    payload = ApproveRequest(
        tool_name=action.tool,
        tool_call_id=CALL,
        args=action.args,
        details=details or None,
        digest=action.digest,
        args_schema=action.args_schema,
        display=action.display,
    )
    return payload.sealed(action.seal)


def _doubt(action: Action, args: JsonObject, attempt: int, same_key: str) -> EscalateRequest:
    prompt = (
        f"{action.tool} was started, and the process stopped before its end was recorded. It may or may not have "
        "taken effect. Run it again, skip it, or abort?"
    )
    details: JsonObject = {
        "tool_name": action.tool,
        "tool_call_id": CALL,
        "args": args,
        "attempt": attempt,
    }
    payload = EscalateRequest(
        prompt=prompt,
        choices=list(CHOICES),
        details=details,
        args_schema=action.args_schema,
        display={**(action.display or {}), "idempotency_key": same_key},
    )
    return payload.sealed(action.seal)
