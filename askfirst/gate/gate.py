"""Gate: one decision and one effect for any function, in any framework."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from pydantic import BaseModel

from askfirst.agent.agent import OwnStore
from askfirst.agent.arguments import parse_args, parse_edit, seal_of
from askfirst.agent.emitter import logger
from askfirst.agent.inbox import grounds
from askfirst.agent.tools import json_object
from askfirst.checkpointer.base import Checkpointer
from askfirst.clock import Clock, SystemClock
from askfirst.errors import (
    Denied,
    GrantLost,
    HitlCancelled,
    HitlInvalidRequest,
    HitlNoPendingRequest,
    HitlTimedOut,
    Pending,
    StillRunning,
)
from askfirst.gate.action import Action
from askfirst.gate.defaults import Defaults, How, given_store, url_of
from askfirst.gate.form import form, read_form
from askfirst.gate.guarded import (
    Entered,
    Guarded,
    GuardedFunctions,
    GuardOptions,
    guarded_function,
    run_body,
)
from askfirst.gate.key_state import CALL, PREFIX, decision_in, key_of, thread_of
from askfirst.gate.ledger import Ledger
from askfirst.gate.listeners import Listeners
from askfirst.gate.notify import Notify, Notifying
from askfirst.gate.outcomes import Approved, Finished, Granted, InDoubt, Ran, Refused, Running, Stored
from askfirst.gate.portal import Portal
from askfirst.gate.results import PLAIN, failure
from askfirst.ids import BASE_URL_VARIABLE, new_id
from askfirst.permissions.decision import Decision, PendingAction, PermissionPolicy
from askfirst.permissions.evaluate import decide
from askfirst.permissions.static import StaticPermissionPolicy
from askfirst.requests import (
    AskRequest,
    ConfirmRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
    StoredRequest,
    approval_seconds,
    seal_in,
)

if TYPE_CHECKING:
    from askfirst.workers.continuations import Continuation
    from askfirst.workers.resumers import Resumer
    from askfirst.workers.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=BaseModel)
Outcome = Ran[Any] | Denied | Pending


class Gate:
    """Stands before functions: policy, then perhaps a person, then the ledger.

    ``store`` is a URL or an open checkpointer, ``policy`` an object or a file of rules. ``timeout`` is how long
    people have to decide (seconds, or a text such as ``"24h"``), ``to`` who is asked. ``agent`` is who asks, by the
    name that people and policies know, ``principal`` on whose behalf calls are made. ``resumer`` names who goes on
    when a request is settled (see `worker`), ``base_url`` is where people reach the service, for the link of
    `Pending`; by default ``ASKFIRST_BASE_URL``. ``notify`` tells people: an `askfirst.service.notifier.Notifier`.
    ``clock`` is what time-outs go by: give the store the same one. Use the gate in ``async with``, or as it is: then
    it opens at its first use and closes with the event loop.
    """

    def __init__(
        self,
        store: str | Checkpointer,
        *,
        policy: PermissionPolicy | str | os.PathLike[str] | None = None,
        timeout: float | str | None = None,
        agent: str | None = None,
        principal: str = "*",
        to: str | None = None,
        resumer: str | None = None,
        base_url: str | None = None,
        notify: Notify | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._own = OwnStore(store) if isinstance(store, str) else None
        self._store: Checkpointer = self._own.checkpointer if self._own is not None else given_store(store)
        is_file = isinstance(policy, str | os.PathLike)
        self._policy = StaticPermissionPolicy.from_file(policy) if is_file else policy
        base_url = base_url or os.environ.get(BASE_URL_VARIABLE)
        self._defaults = Defaults(approval_seconds(timeout), principal, to, resumer, base_url, agent)
        self._clock: Clock = clock or SystemClock()
        self._listeners, self._notifying = Listeners(), Notifying(notify)
        self.ledger = Ledger(self._store, self._listeners.tell, self._clock)
        self._functions = GuardedFunctions()
        self.portal = Portal(lambda: self._elsewhere(store))
        """The event loop in a thread of its own, on which guarded functions wait that are not async."""

    def _elsewhere(self, store: Any) -> Gate:
        """The same gate for another event loop, with the same listeners."""
        same = {"policy": self._policy, "notify": self._notifying.notify, "clock": self._clock}
        made = Gate(url_of(store), **same, **asdict(self._defaults))
        made.on_opened(self._listeners.tell)
        return made

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the store that was given as a URL; another use opens it again."""
        if self.portal.is_open:
            await asyncio.to_thread(self.portal.close)
        await self._notifying.end()
        if self._own is not None:
            await self._own.close()

    async def ready(self) -> None:
        """Open the store, if it was given as a URL and is not open yet, and begin to deliver requests to people."""
        if self._own is not None:
            await self._own.open()
        await self._notifying.begin(self._store)

    # Functions.

    @overload
    def guarded(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def guarded(self, /, **options: Unpack[GuardOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def guarded(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Put a function behind the gate; it keeps its signature, docstring and types.

        Called, it waits for the decision in place; after ``wait`` seconds it raises `Pending`. It raises `Denied`
        where the answer is no. ``key`` is a function of the arguments that gives the call's key: the same call
        with the same key is decided once and runs once. Without it each call has a key of its own, and a call that
        a crash interrupted is asked about anew.

        ``requires_approval`` is True (a person decides every call), False (the policy decides) or a function of
        the arguments. ``effect`` says what running the body twice would do: see `askfirst.Tool`. A function that
        is not async waits in its own thread, and so cannot be called in the event loop's.
        """
        localns = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage]

        def decorate(decorated: Callable[..., Any]) -> Any:
            return guarded_function(self, decorated, localns, options)

        return decorate if function is None else decorate(function)

    async def call(
        self,
        function: Callable[..., Any],
        args: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        wait: float | None = None,
        **shown: Any,
    ) -> Outcome:
        """Call a function through the gate: `Ran`, `Denied` or, if nobody decides within ``wait`` seconds, `Pending`.

        ``key`` names the call: whoever calls again with the same key gets the same decision and the same result.
        ``shown`` are the options of `guarded`.
        """
        guarded = self.guard(function, shown)
        entered = await self.enter(guarded, args or {}, key=key, wait=wait)
        return Ran(await self._run(guarded, entered)) if isinstance(entered, Entered) else entered

    def guard(self, function: Callable[..., Any], shown: Mapping[str, Any] | None = None) -> Guarded:
        """A function as the gate sees it; ``shown`` are the options of `guarded`."""
        return self._functions.get(function, shown or {})

    async def enter(
        self, guarded: Guarded, args: Mapping[str, Any], *, key: str | None = None, wait: float | None = None
    ) -> Entered | Outcome:
        """Decide about a call and record the beginning of its body in the ledger; `leave` records how the body ended.

        Raises `HitlInvalidRequest` for arguments that the function does not take, before anyone is asked.
        """
        model = parse_args(guarded.tool, args)
        if isinstance(model, str):
            name = guarded.tool.name
            raise HitlInvalidRequest(f"the arguments of {name} are invalid, so nobody was asked: {model}")
        deadline = None if wait is None else asyncio.get_running_loop().time() + wait
        is_new = key is None and guarded.key is None
        if key is None:
            key = new_id() if guarded.key is None else guarded.key_for(args)
        await self.ready()
        action = await self._action(guarded, model, key)
        decision = await self._judge(action)
        if decision.verdict == "deny":
            return Denied(key, decision.reason or "it is not allowed")
        asks = decision.verdict == "ask" or action.requires_approval
        runs: BaseModel = model
        if asks:
            verdict = await self._decided(key, action, decision, deadline)
            if isinstance(verdict, Denied | Pending):
                return verdict
            if verdict.is_edited:
                edited = await self._edited(guarded, action, model, verdict)
                if isinstance(edited, str):
                    return Denied(key, edited, verdict.by)
                runs = edited
        if guarded.tool.effect == "none":
            return Entered(key, runs, is_recorded=False)
        if not asks:
            self.ledger.remember(key, action, is_allowed=True, is_new=is_new)
        return await self._begun(guarded, key, runs, deadline)

    async def leave(self, guarded: Guarded, entered: Entered, ended: Stored | None) -> None:
        """Record how a body ended; None if it was interrupted: its effect is in doubt. Raises `GrantLost`."""
        if not entered.is_recorded:
            return
        if ended is None:
            await asyncio.shield(self.ledger.abandon(entered.key))
            return
        try:
            await self.ledger.finish(entered.key, ended)
        except GrantLost:
            logger.error("the body of %s ended after its grant was lost; its result is not kept", entered.key)
            raise

    async def _run(self, guarded: Guarded, entered: Entered) -> Any:
        try:
            result = await run_body(guarded, entered.args)
        except Exception as error:
            await self.leave(guarded, entered, failure(error))
            raise
        except BaseException:
            await self.leave(guarded, entered, None)
            raise
        await self.leave(guarded, entered, guarded.results.encode(result))
        return result

    async def _edited(
        self, guarded: Guarded, action: Action, model: BaseModel, verdict: Approved
    ) -> BaseModel | str:
        """The arguments as a person edited them, or why the call does not run with them."""
        edited = parse_edit(guarded.tool, model, verdict.args)
        if isinstance(edited, str):
            return f"the edited arguments do not fit: {edited}"
        judged = await self._judge(replace(action, args=json_object(edited)))
        denied = judged.verdict == "deny"
        return (judged.reason or "the edited arguments are not allowed") if denied else edited

    async def _action(self, guarded: Guarded, model: BaseModel, key: str) -> Action:
        shown = json_object(model)
        seal = seal_of(model, shown, None)
        if seal is not None:  # a seal has a salt: make it with the one on record, to compare
            known = await self._store.request(thread_of(key), CALL)
            seal = seal if known is None else seal_of(model, shown, seal_in(known.request))
        action = Action(
            tool=guarded.tool.name,
            args=shown,
            args_schema=guarded.tool.args_schema,
            requires_approval=guarded.requires(shown),
            effect=guarded.tool.effect,
            timeout=guarded.timeout,
            to=guarded.to,
            display=guarded.tool.words_for(shown),
            resumer=guarded.resumer,
            seal=seal,
        )
        return self._defaults.fill(action)

    async def _judge(self, action: Action) -> Decision:
        if self._policy is None:
            return _ALLOWED
        pending = PendingAction(
            tool=action.tool,
            principal=action.principal,
            toolset=action.toolset,
            args=action.args,
            tool_call_id=CALL,
            agent_path=action.agent_path,
        )
        [decision] = await decide(self._policy, [pending])
        return decision

    async def _decided(
        self, key: str, action: Action, decision: Decision, deadline: float | None
    ) -> Approved | Denied | Pending:
        known = await self._asked(key, action, decision)
        if known is None:  # it was allowed and begun before anybody had to be asked
            return Approved(action.args)
        if known.status == "pending":
            settled = await self.ledger.wait(key, CALL, _left(deadline))
            if settled is None:
                return self._defaults.pending(known)
            known = settled
        verdict = decision_in(known, action.args)
        if verdict is None:
            return Denied(key, "the request was withdrawn")
        return Denied(key, verdict.reason, verdict.by) if isinstance(verdict, Refused) else verdict

    async def _asked(self, key: str, action: Action, decision: Decision) -> StoredRequest | None:
        """Ask a person, once. A time-out of the policy's decision takes precedence over the gate's."""
        if decision.approval_timeout is not None:
            action = replace(action, timeout=decision.approval_timeout)
        return await self.ledger.open(key, action, grounds(action.agent_path, "*", decision))

    async def _begun(
        self, guarded: Guarded, key: str, runs: BaseModel, deadline: float | None
    ) -> Entered | Outcome:
        args = json_object(runs)
        while True:
            match await self.ledger.begin(key, args, is_decided=True, wait=_left(deadline)):
                case Finished(result):
                    return Ran(guarded.results.decode(key, result))
                case Refused(reason, by):
                    return Denied(key, reason, by)
                case InDoubt(known):
                    settled = await self.ledger.wait(key, known.question_id, _left(deadline))
                    if settled is None:
                        return self._defaults.pending(known)
                case Granted(_, attempt, edited):
                    if edited is not None:
                        again = parse_edit(guarded.tool, runs, edited)
                        if isinstance(again, str):
                            await self.ledger.abandon(key)
                            return Denied(key, f"the new arguments do not fit: {again}")
                        runs = again
                    return Entered(key, runs, attempt)
                case Running():
                    raise StillRunning(key)

    # Questions.

    async def confirm(
        self,
        question: str,
        *,
        context: Mapping[str, Any] | None = None,
        key: str | None = None,
        **how: Unpack[How],
    ) -> bool:
        """Ask yes or no. Raises `HitlTimedOut` if nobody answers in time, and `Pending` after ``wait`` seconds."""
        payload = ConfirmRequest(prompt=question, details=None if context is None else json_object(context))
        return bool(await self._answered(key or new_id(), "confirm", payload, how))

    async def choose(
        self,
        question: str,
        options: Sequence[str] | Mapping[str, str],
        *,
        key: str | None = None,
        **how: Unpack[How],
    ) -> str:
        """Ask for one of some options: values, or values with their labels. Raises as `confirm` does."""
        labels = dict(options) if isinstance(options, Mapping) else {it: it for it in options}
        if not labels:
            raise HitlInvalidRequest("a choice needs at least one option")
        choices = [Option(label=label, value=value) for value, label in labels.items()]
        payload = AskRequest(questions=[Question(key="choice", prompt=question, options=choices)])
        answer = await self._answered(key or new_id(), "choose", payload, how)
        return answer["choice"]

    async def ask(
        self,
        model: type[M],
        question: str,
        *,
        context: Mapping[str, Any] | None = None,
        key: str | None = None,
        **how: Unpack[How],
    ) -> M:
        """Ask for a pydantic model, as a form of its fields. Raises as `confirm` does.

        An answer that the model refuses is asked for again, with what was wrong with it.
        """
        named = key or new_id()
        problem: str | None = None
        for number in range(1, _MOST_TRIES + 1):
            payload = form(model, question, context, problem)
            answer = await self._answered(named, "ask" if number == 1 else f"ask~{number}", payload, how)
            try:
                return read_form(model, answer)
            except ValueError as error:
                problem = str(error)
        raise HitlInvalidRequest(f"{_MOST_TRIES} answers did not fit {model.__name__}: {problem}")

    async def _answered(self, key: str, question_id: str, payload: HitlPayload, how: How) -> Any:
        known = await self.question(key, question_id, payload, how)
        settled = await self.ledger.wait(key, question_id, how.get("wait"))
        if settled is None:
            raise self._defaults.pending(known)
        if settled.status == "answered":
            return settled.answer
        if settled.status == "timed_out":
            raise HitlTimedOut(settled.request.timeout_seconds)
        why, by = settled.reason or settled.status, settled.answered_by
        raise HitlCancelled(why, answered_by=by, via=settled.via)

    # For adapters: one decision and one effect for each key that they choose.

    async def question(
        self, key: str, question_id: str, payload: HitlPayload, how: How, **goes_on: str
    ) -> StoredRequest:
        """Ask a question under a key, once, and do not wait; ``goes_on`` is what `Ledger.put` takes."""
        await self.ready()
        seconds = approval_seconds(how.get("timeout"))
        to = how.get("to") or self._defaults.to
        if to is not None and isinstance(payload, ConfirmRequest):
            payload = payload.model_copy(update={"details": {**(payload.details or {}), "to": to}})
        request = HitlRequest(
            question_id=question_id,
            thread_id=thread_of(key),
            payload=payload,
            created_at=self._clock.now(),
            timeout_seconds=self._defaults.timeout if seconds is None else seconds,
            agent_path=list(self._defaults.agent_path) or None,
        )
        return await self.ledger.put(key, request, **goes_on)

    async def open(
        self, key: str, action: Action, *, before_asking: Callable[[], Awaitable[None]] | None = None
    ) -> Approved | Refused | None:
        """Ask the gate about an action, once; returns the decision, or None while a person is asked.

        Arguments that a person edited are checked by the policy again. The gate's ``timeout``, ``principal`` and
        ``to`` apply where the action has none. ``before_asking`` is called before a person can see the request, to
        store what is needed to continue. Raises `KeyConflict` if another action has this key.
        """
        await self.ready()
        action = self._defaults.fill(action)
        decision = await self._judge(action)
        if decision.verdict == "deny":
            return Refused(decision.reason or "it is not allowed")
        if decision.verdict == "allow" and not action.requires_approval:
            self.ledger.remember(key, action, is_allowed=True)
            return Approved(action.args)
        if before_asking is not None:
            await before_asking()
        known = await self._asked(key, action, decision)
        if known is None:  # it was allowed and begun before anybody had to be asked
            self.ledger.remember(key, action, is_allowed=True)
            return Approved(action.args)
        verdict = None if known.status == "pending" else decision_in(known, action.args)
        if isinstance(verdict, Approved) and verdict.is_edited:
            judged = await self._judge(replace(action, args=verdict.args))
            if judged.verdict == "deny":
                return Refused(judged.reason or "the edited arguments are not allowed", verdict.by)
        return verdict

    async def judge(self, action: Action) -> Decision:
        """What the policy says about an action; nobody is asked, and nothing is recorded."""
        return await self._judge(self._defaults.fill(action))

    async def asks(self, action: Action) -> bool:
        """Whether `open` would ask a person; False if the policy allows or denies the action by itself."""
        decision = await self.judge(action)
        return decision.verdict == "ask" or (decision.verdict == "allow" and action.requires_approval)

    async def waiting(self, key: str) -> Pending | None:
        """What is open under a key, as the `Pending` that a guarded function raises; None if nothing is."""
        await self.ready()
        try:
            return self._defaults.pending(await self._meant(key))
        except HitlNoPendingRequest:
            return None

    @property
    def checkpointer(self) -> Checkpointer:
        """The store of this gate, open after `ready`."""
        return self._store

    @property
    def has_policy(self) -> bool:
        """Whether a policy was given, which decides on calls that no person has to approve."""
        return self._policy is not None

    async def decision(self, key: str) -> Approved | Refused | None:
        """What was decided about a key's action; None while it is open."""
        await self.ready()
        return await self.ledger.decision(key)

    async def begin(
        self, key: str, args: Mapping[str, Any], *, wait: float | None = None
    ) -> Granted | Finished | InDoubt | Refused | Running:
        """Begin a body with these arguments: `Granted` once, then `Finished`; `InDoubt` if its end is unknown.

        While another process runs the body, this waits for its end, or for ``wait`` seconds. Raises `NotApproved`
        unless these arguments were approved, as they were shown or as a person edited them.
        """
        await self.ready()
        return await self.ledger.begin(key, json_object(args), wait=wait)

    async def finish(self, key: str, result: Any = None) -> None:
        """Record the result of a granted body; every later `begin` returns it.

        A result that is not JSON, or larger than 1 MB, is kept as its digest. Raises `GrantLost`.
        """
        await self.ledger.finish(key, PLAIN.encode(result))

    async def fail(self, key: str, error: BaseException | str) -> None:
        """Record that a granted body raised; it does not run again under this key. Raises `GrantLost`."""
        ended = Stored(error=error) if isinstance(error, str) else failure(error)
        await self.ledger.finish(key, ended)

    async def pause(self, key: str) -> None:
        """Record that a granted body has stopped by itself to wait, as some frameworks do.

        The framework runs the body again from its start, and the next `begin` grants that. Raises `GrantLost`.
        """
        await self.ledger.pause(key)

    # For hosts.

    def worker(self, resumers: Mapping[str, Resumer], *, concurrency: int = 10, **options: Any) -> Worker:
        """A worker on this gate's store: ``async with gate.worker(resumers):``, or ``await gate.worker(...).run()``.

        It continues the calls that people have decided on; ``options`` are those of `askfirst.workers.Worker`. Raises
        `HitlError` if the gate's store keeps no continuations.
        """
        from askfirst.gate.worker import worker_of  # brings a database's library

        return worker_of(self._store, self.ready, resumers, concurrency=concurrency, **options)

    @staticmethod
    def key_of(continuation: Continuation) -> str:
        """The key of a settled request, for a resumer that calls the function again."""
        return key_of(continuation.thread_id)

    async def pending(self, limit: int = 100) -> list[StoredRequest]:
        """The open requests of gates on this store, oldest first."""
        await self.ready()
        found: list[StoredRequest] = []
        after: str | None = None
        while page := await self._store.pending(limit, after):
            found += [it for it in page if it.thread_id.startswith(PREFIX)]
            after = page[-1].cursor
            if len(found) >= limit:
                break
        return found[:limit]

    async def answer(
        self, request: StoredRequest | str, answer: Any, *, by: str | None = None, via: str | None = None
    ) -> StoredRequest:
        """Answer a request, or the open request of a key; the answer is bound to what the request showed."""
        known = await self._meant(request)
        return await self._store.settle(
            known.thread_id,
            known.question_id,
            answer,
            by=by,
            via=via,
            digest=known.request.digest,
            round=known.round,
        )

    async def cancel(
        self, request: StoredRequest | str, reason: str = "cancelled", *, by: str | None = None
    ) -> StoredRequest:
        """End a request without an answer; its call is denied."""
        known = await self._meant(request)
        return await self._store.cancel(
            known.thread_id, known.question_id, reason, by=by, digest=known.request.digest, round=known.round
        )

    async def _meant(self, request: StoredRequest | str) -> StoredRequest:
        await self.ready()
        if isinstance(request, StoredRequest):
            return request
        stored = await self._store.load(thread_of(request))
        pending = [] if stored is None else [it for it in stored.requests.values() if it.status == "pending"]
        if not pending:
            raise HitlNoPendingRequest(request)
        return pending[0]

    def on_opened(self, listener: Callable[[StoredRequest], Any]) -> Callable[[], None]:
        """Call ``listener`` (sync or async) with every request opened here; returns a function that removes it.

        For functions that are not async the listener is called in the gate's own thread.
        """
        return self._listeners.add(listener)


_ALLOWED = Decision.allow()
_MOST_TRIES = 10


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())
