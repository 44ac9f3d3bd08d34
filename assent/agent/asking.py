"""Where in a run a question is asked from, so that its answer finds its way back after a restart."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

Place = Literal["gate", "tool", "safe_point"]


@dataclass(slots=True)
class Asking:
    """The call that a question is about, and the place it is asked from.

    At the gate and at a safe point nothing has happened yet that asking again would repeat; inside a tool's
    body something may have.
    """

    place: Place
    tool_call_id: str
    tool_name: str
    outer: Asking | None = None
    """Where the code that asks is itself called from: an agent may run within another's tool."""
    asked: int = 0

    def is_within(self, place: Place) -> bool:
        """Whether this is such a place, or is called from one."""
        return self.place == place or (self.outer is not None and self.outer.is_within(place))

    def question_id(self, kind: str) -> str:
        """An id that the same question gets again when the run is resumed."""
        self.asked += 1
        place = "" if self.place == "gate" else "body:"
        return f"{self.tool_call_id}:{place}{kind}:{self.asked}"


def is_about(question_id: str, tool_call_id: str) -> bool:
    """Whether a question belongs to this call: it has the call's id, or one that an `Asking` made of it."""
    return question_id == tool_call_id or question_id.startswith(f"{tool_call_id}:")


def is_from_body(question_id: str, tool_call_id: str) -> bool:
    """Whether a question was asked by the call's body, not at its gate."""
    return question_id.startswith(f"{tool_call_id}:body:")


_asking: ContextVar[Asking | None] = ContextVar("assent_asking", default=None)


def current_asking() -> Asking | None:
    """The call being gated or run in this context, if any."""
    return _asking.get()


class asking_from:  # noqa: N801  (used like a function)
    """Questions asked within belong to this call."""

    __slots__ = ("_asking", "_token")

    def __init__(self, place: Place, tool_call_id: str, tool_name: str) -> None:
        outer = _asking.get()
        if outer is not None and outer.tool_call_id == tool_call_id:  # another place of the same call
            outer = outer.outer
        self._asking = Asking(place, tool_call_id, tool_name, outer)

    def __enter__(self) -> Asking:
        self._token = _asking.set(self._asking)
        return self._asking

    def __exit__(self, *error: object) -> None:
        _asking.reset(self._token)


def safe_point() -> AbstractContextManager[Asking | None]:
    """Declare that nothing done so far in this tool's body would be repeated by beginning anew."""
    current = _asking.get()
    return (
        nullcontext()
        if current is None
        else asking_from("safe_point", current.tool_call_id, current.tool_name)
    )
