"""The context variable: for which agent code runs, from which place of a run it asks, and who has the turn."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from askfirst.agent.channel_host import Turns
    from askfirst.agent.session import Session
    from askfirst.channels import HitlChannel

Place = Literal["gate", "tool", "safe_point"]


class Asking:
    """The call that a question is about, and the place it is asked from; a context manager around that place's code.

    At the gate and at a safe point a resumed run can ask again without repeating an effect. Inside a tool's body it
    cannot: something may have happened already.
    """

    __slots__ = ("_token", "asked", "outer", "place", "tool_call_id", "tool_name")

    def __init__(self, place: Place, tool_call_id: str, tool_name: str) -> None:
        outer: Asking | None = current.get().asking
        if outer is not None and outer.tool_call_id == tool_call_id:  # another place of the same call
            outer = outer.outer
        self.place: Place = place
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.outer: Asking | None = outer
        """Where the code that asks is itself called from: an agent may run within another's tool."""
        self.asked = 0

    def __enter__(self) -> Asking:
        at = current.get()
        self._token = current.set(
            Context(at.session, at.turns, at.turn_at, self, at.hearing, at.framework_run)
        )
        return self

    def __exit__(self, *error: object) -> None:
        current.reset(self._token)

    def is_within(self, place: Place) -> bool:
        """Whether this is that place, or is called from within it."""
        return self.place == place or (self.outer is not None and self.outer.is_within(place))

    def question_id(self, kind: str) -> str:
        """A question id that a resumed run makes again; `question_ids.named` resolves conflicts."""
        self.asked += 1
        place = "" if self.place == "gate" else "body:"
        return f"{self.tool_call_id}:{place}{kind}:{self.asked}"


class Context:
    """What the running code belongs to. It is immutable: inner code gets a context of its own."""

    __slots__ = ("asking", "framework_run", "hearing", "session", "turn_at", "turns")

    def __init__(
        self,
        session: Session | None = None,
        turns: Turns | None = None,
        turn_at: HitlChannel | None = None,
        asking: Asking | None = None,
        hearing: object | None = None,
        framework_run: str | None = None,
    ) -> None:
        self.session = session
        """The agent whose run this code belongs to: several agents may ask through one channel."""
        self.turns = turns
        """How the agents of this run take turns at a channel; None if there is one agent."""
        self.turn_at = turn_at
        """The channel at which this code has the turn."""
        self.asking = asking
        """The call being gated or run."""
        self.hearing = hearing
        """The wait (`hitl.wait.Slot`) whose listener this code is, in the listener's task and its child tasks."""
        self.framework_run = framework_run
        """The key of another framework's run, where its tools are told of no key (`adapters.openai_agents`)."""


current: ContextVar[Context] = ContextVar("askfirst", default=Context())  # noqa: B039  (it is immutable)


def current_asking() -> Asking | None:
    """The call being gated or run in this context, if any."""
    return current.get().asking


def safe_point() -> AbstractContextManager[Asking | None]:
    """Declare that running this tool's body again from its start would repeat no effect."""
    asking = current.get().asking
    return nullcontext() if asking is None else Asking("safe_point", asking.tool_call_id, asking.tool_name)
