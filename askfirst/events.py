"""The events that an agent's listeners get, as frozen values.

Every event has a ``type``, its ``thread_id`` and ``run_id``, a ``seq`` that grows by one with each event of a thread,
``at``, the time in seconds since 1970 (UTC), and ``agent_path``, the ids of the agents from the root to the agent
that the event is about. An agent's listeners also get the events of its subagents. ``AgentEvent`` is the union of all
events; `encode_event` and `decode_event` turn an event into JSON and back.

The events of a run, in order: run started; for each turn, turn started, the model's message (started, deltas,
ended), each tool (started, progress, ended), the tools' result messages, turn ended; run ended.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from askfirst.approvals import PendingApproval
from askfirst.messages import NO_USAGE, Delta, JsonObject, Message, Usage, Value, invalid_value
from askfirst.requests import HitlRequest

RunStatus = Literal["completed", "paused", "suspended", "aborted", "failed"]


class Event(Value):
    """What all events have in common."""

    thread_id: str
    run_id: str
    seq: int
    at: float
    """Seconds since 1970 (UTC)."""
    agent_path: tuple[str, ...] = ()


class RunStartedEvent(Event):
    """A run began, or went on (``resumed``)."""

    type: Literal["run_started"] = "run_started"
    agent_id: str
    resumed: bool = False


class RunEndedEvent(Event):
    """A run ended or paused. ``reason`` says why, where the status does not."""

    type: Literal["run_ended"] = "run_ended"
    status: RunStatus
    text: str = ""
    reason: str | None = None
    usage: Usage = NO_USAGE


class TurnStartedEvent(Event):
    """A turn began: a model call, then its tools."""

    type: Literal["turn_started"] = "turn_started"


class TurnEndedEvent(Event):
    """A turn ended; its messages are in the transcript."""

    type: Literal["turn_ended"] = "turn_ended"


class MessageStartedEvent(Event):
    """A message begins; an assistant's is followed by deltas."""

    type: Literal["message_started"] = "message_started"
    role: Literal["user", "assistant", "tool"]


class MessageDeltaEvent(Event):
    """A piece of the assistant's message, while the model still streams it."""

    type: Literal["message_delta"] = "message_delta"
    delta: Delta


class MessageEndedEvent(Event):
    """A message is complete and in the transcript."""

    type: Literal["message_ended"] = "message_ended"
    message: Message


class ToolStartedEvent(Event):
    """A tool's body is about to run with these arguments."""

    type: Literal["tool_started"] = "tool_started"
    tool_call_id: str
    tool_name: str
    args: JsonObject


class ToolProgressEvent(Event):
    """A running tool reports how far it is: a fraction from 0 to 1, a text, or both."""

    type: Literal["tool_progress"] = "tool_progress"
    tool_call_id: str
    tool_name: str
    fraction: float | None = None
    text: str = ""


class ToolEndedEvent(Event):
    """A call is resolved: its body ended, or it was denied and its body never began."""

    type: Literal["tool_ended"] = "tool_ended"
    tool_call_id: str
    tool_name: str
    is_error: bool


class HitlRequestEvent(Event):
    """A person is asked. If there is a store, the request was stored before this event."""

    type: Literal["hitl_request"] = "hitl_request"
    request: HitlRequest


class HitlAnswerEvent(Event):
    """A request was settled: answered, cancelled or timed out."""

    type: Literal["hitl_answer"] = "hitl_answer"
    question_id: str
    answer: Any = None
    cancelled: bool = False
    timed_out: bool = False


class ApprovalEvent(Event):
    """A call waits for a person (``requested``), or the person has decided and the run goes on (``resolved``).

    ``decision`` is then ``"approve"``, ``"deny"`` or ``"edit"``.
    """

    type: Literal["approval"] = "approval"
    phase: Literal["requested", "resolved"]
    approval: PendingApproval
    decision: str | None = None


class AgentSuspendedEvent(Event):
    """The agent was detached while it waited for a person; the request stays open."""

    type: Literal["agent_suspended"] = "agent_suspended"
    pending_request: HitlRequest


class AgentAbortedEvent(Event):
    """The conversation was closed while it waited for a person."""

    type: Literal["agent_aborted"] = "agent_aborted"
    reason: str


AgentEvent = Annotated[
    RunStartedEvent
    | RunEndedEvent
    | TurnStartedEvent
    | TurnEndedEvent
    | MessageStartedEvent
    | MessageDeltaEvent
    | MessageEndedEvent
    | ToolStartedEvent
    | ToolProgressEvent
    | ToolEndedEvent
    | HitlRequestEvent
    | HitlAnswerEvent
    | ApprovalEvent
    | AgentSuspendedEvent
    | AgentAbortedEvent,
    Field(discriminator="type"),
]

_EVENT: TypeAdapter[AgentEvent] = TypeAdapter(AgentEvent, config=ConfigDict(defer_build=True))


def encode_event(event: AgentEvent) -> str:
    """An event as JSON."""
    return event.model_dump_json()


def decode_event(data: str | bytes) -> AgentEvent:
    """The event that `encode_event` wrote. Raises `InvalidMessage` for anything else."""
    try:
        return _EVENT.validate_json(data)
    except ValidationError as error:
        raise invalid_value(error, error.errors(include_url=False)[0]["loc"][1:]) from None
