"""SyncGate: the gate for code without an event loop, from any number of threads."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack, overload

from pydantic import BaseModel

from askfirst.gate.action import Action
from askfirst.gate.gate import Gate, Outcome
from askfirst.gate.guarded import GuardOptions, call_here, guarded_function
from askfirst.gate.notify import Notify
from askfirst.gate.outcomes import Approved, Finished, Granted, InDoubt, Refused, Running
from askfirst.permissions.decision import PermissionPolicy
from askfirst.requests import StoredRequest

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=BaseModel)


class SyncGate:
    """A `Gate` with blocking methods, for Flask, Celery tasks and scripts. Bodies run in the calling thread;
    everything else runs on an event loop in a thread of the gate's own."""

    def __init__(
        self,
        store: str,
        *,
        policy: PermissionPolicy | str | os.PathLike[str] | None = None,
        timeout: float | str | None = None,
        agent: str | None = None,
        principal: str = "*",
        to: str | None = None,
        resumer: str | None = None,
        base_url: str | None = None,
        notify: Notify | None = None,
    ) -> None:
        self._gate = Gate(
            store,
            policy=policy,
            timeout=timeout,
            agent=agent,
            principal=principal,
            to=to,
            resumer=resumer,
            base_url=base_url,
            notify=notify,
        )
        self._portal = self._gate.portal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; another use opens it again."""
        self._portal.close()

    @overload
    def guarded(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def guarded(self, /, **options: Unpack[GuardOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def guarded(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Put a function that is not async behind the gate; the options are those of `Gate.guarded`."""
        localns = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage]

        def decorate(decorated: Callable[..., Any]) -> Any:
            return guarded_function(self._gate, decorated, localns, options)

        return decorate if function is None else decorate(function)

    def call(
        self,
        function: Callable[..., Any],
        args: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        wait: float | None = None,
        **shown: Any,
    ) -> Outcome:
        """Call a function through the gate; see `Gate.call`. An async one runs on the gate's own event loop."""
        if inspect.iscoroutinefunction(function):
            return self._portal.run(lambda gate: gate.call(function, args, key=key, wait=wait, **shown))
        return call_here(self._portal, self._gate.guard(function, shown), args or {}, key=key, wait=wait)

    def confirm(self, question: str, **how: Any) -> bool:
        """Ask yes or no; see `Gate.confirm`."""
        return self._portal.run(lambda gate: gate.confirm(question, **how))

    def choose(self, question: str, options: Sequence[str] | Mapping[str, str], **how: Any) -> str:
        """Ask for one of some options; see `Gate.choose`."""
        return self._portal.run(lambda gate: gate.choose(question, options, **how))

    def ask(self, model: type[M], question: str, **how: Any) -> M:
        """Ask for a pydantic model; see `Gate.ask`."""
        return self._portal.run(lambda gate: gate.ask(model, question, **how))

    def pending(self, limit: int = 100) -> list[StoredRequest]:
        """The open requests, oldest first."""
        return self._portal.run(lambda gate: gate.pending(limit))

    def answer(self, request: StoredRequest | str, answer: Any, **who: Any) -> StoredRequest:
        """Answer a request; see `Gate.answer`."""
        return self._portal.run(lambda gate: gate.answer(request, answer, **who))

    def cancel(self, request: StoredRequest | str, reason: str = "cancelled", **who: Any) -> StoredRequest:
        """End a request without an answer; see `Gate.cancel`."""
        return self._portal.run(lambda gate: gate.cancel(request, reason, **who))

    def on_opened(self, listener: Callable[[StoredRequest], Any]) -> Callable[[], None]:
        """Call ``listener``, in the gate's own thread, with every request that this gate opens; see `Gate.on_opened`.

        Answer from another thread: a method of this gate cannot block the thread that serves it.
        """
        return self._gate.on_opened(listener)

    # For adapters.

    def open(self, key: str, action: Action) -> Approved | Refused | None:
        """Put an action to the gate, once; see `Gate.open`."""
        return self._portal.run(lambda gate: gate.open(key, action))

    def decision(self, key: str) -> Approved | Refused | None:
        """What was decided about a key's action; see `Gate.decision`."""
        return self._portal.run(lambda gate: gate.decision(key))

    def begin(
        self, key: str, args: Mapping[str, Any], *, wait: float | None = None
    ) -> Granted | Finished | InDoubt | Refused | Running:
        """Begin a body with these arguments; see `Gate.begin`."""
        return self._portal.run(lambda gate: gate.begin(key, args, wait=wait))

    def finish(self, key: str, result: Any = None) -> None:
        """Record the result of a body that was granted; see `Gate.finish`."""
        self._portal.run(lambda gate: gate.finish(key, result))

    def fail(self, key: str, error: BaseException | str) -> None:
        """Record that a body that was granted raised; see `Gate.fail`."""
        self._portal.run(lambda gate: gate.fail(key, error))
