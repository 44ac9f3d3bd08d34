"""What a service sends by itself: events of a stream, and callbacks (webhooks)."""

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import Field

from askfirst.protocol.case import EventName, State
from askfirst.protocol.poll import CaseFacts
from askfirst.protocol.wire import Email, JsonObject, OpenWire, Opt, Text, Time, Wire

EVENT_OF: Mapping[State, EventName] = {
    "opened": "review.opened",
    "in_progress": "review.in_progress",
    "completed": "review.completed",
    "expired": "review.expired",
    "cancelled": "review.cancelled",
}
"""The event that tells of each state but the first."""

CallbackEvent = Literal["review.completed", "review.expired", "review.cancelled"]
FINAL_EVENTS: tuple[CallbackEvent, ...] = get_args(CallbackEvent)
"""The events that tell of a case's end."""


class EventData(CaseFacts, OpenWire):
    """The data of an event: the case, and those facts of a poll answer that changed."""

    case_id: Text
    status: Opt[State] = None


class ReviewEvent(Wire):
    """One event of a stream. ``id`` is what a client names in ``Last-Event-ID`` when it comes back."""

    event: EventName
    id: Text
    data: EventData


class CallbackResult(OpenWire):
    """What the person decided, as a callback tells it."""

    action: Opt[Text] = None
    data: Opt[JsonObject] = Field(default=None, repr=False)


class CallbackRespondent(OpenWire):
    """Who answered, as a callback tells it."""

    name: Opt[Text] = None
    email: Opt[Email] = None


class Callback(OpenWire):
    """The body that a service posts to an agent when a case has ended."""

    event: CallbackEvent
    case_id: Text
    timestamp: Time
    result: Opt[CallbackResult] = None
    responded_by: Opt[CallbackRespondent] = None
