"""SyncGate: the gate for code without an event loop, from any number of threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from askfirst.gate.gate import Gate, Outcome
from askfirst.gate.guarded import call_here, guarded_function
from askfirst.permissions.decision import PermissionPolicy
from askfirst.requests import StoredRequest

M = TypeVar("M", bound=BaseModel)


class SyncGate:
    """A `Gate` whose verbs wait: for Flask, Celery tasks and scripts.

    Bodies run in the thread that calls them; all else happens on an event loop in a thread of the gate's own.
    """

    def __init__(
        self,
        store: str,
        *,
        policy: PermissionPolicy | str | os.PathLike[str] | None = None,
        timeout: float | str | None = None,
        principal: str = "*",
        to: str | None = None,
    ) -> None:
        self._gate = Gate(store, policy=policy, timeout=timeout, principal=principal, to=to)
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
        """Call a function through the gate; see `Gate.call`."""
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
