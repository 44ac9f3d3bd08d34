"""Where code runs: for which agent, from which place of a run it asks, whose turn it is. The one context variable."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from askfirst.agent.channel_host import Turns
    from askfirst.agent.session import Session
    from askfirst.channels import HitlChannel

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
        """An id that is the same again when the run is resumed; `question_ids.named` makes it the question's own."""
        self.asked += 1
        place = "" if self.place == "gate" else "body:"
        return f"{self.tool_call_id}:{place}{kind}:{self.asked}"


class Context:
    """What is known of the code that runs now. It is not changed: code further in gets a context of its own."""

    __slots__ = ("asking", "hearing", "session", "turn_at", "turns")

    def __init__(
        self,
        session: Session | None = None,
        turns: Turns | None = None,
        turn_at: HitlChannel | None = None,
        asking: Asking | None = None,
        hearing: object | None = None,
    ) -> None:
        self.session = session
        """The agent whose run this code belongs to: several agents may ask through one channel."""
        self.turns = turns
        """How the agents of this run take turns at a channel; None where one agent works alone."""
        self.turn_at = turn_at
        """The channel at which this code has the turn."""
        self.asking = asking
        """The call being gated or run."""
        self.hearing = hearing
        """The request that a listener is being told of, in its task and the tasks that it makes."""


current: ContextVar[Context] = ContextVar("askfirst", default=Context())  # noqa: B039  (nothing changes it)


def current_asking() -> Asking | None:
    """The call being gated or run in this context, if any."""
    return current.get().asking


class asking_from:  # noqa: N801  (used like a function)
    """Questions asked within belong to this call."""

    __slots__ = ("_asking", "_token")

    def __init__(self, place: Place, tool_call_id: str, tool_name: str) -> None:
        outer = current.get().asking
        if outer is not None and outer.tool_call_id == tool_call_id:  # another place of the same call
            outer = outer.outer
        self._asking = Asking(place, tool_call_id, tool_name, outer)

    def __enter__(self) -> Asking:
        at = current.get()
        self._token = current.set(Context(at.session, at.turns, at.turn_at, self._asking, at.hearing))
        return self._asking

    def __exit__(self, *error: object) -> None:
        current.reset(self._token)


def safe_point() -> AbstractContextManager[Asking | None]:
    """Declare that nothing done so far in this tool's body would be repeated by beginning anew."""
    asking = current.get().asking
    return (
        nullcontext() if asking is None else asking_from("safe_point", asking.tool_call_id, asking.tool_name)
    )
