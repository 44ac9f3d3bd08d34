"""What is sent to a person, and what every way of sending it has to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

NoticeKind = Literal[
    "review",  # please decide, here is the link
    "reminder",  # the same again, as nobody has decided yet
    "progress",  # somebody opened the page, or is at work on it
    "completed",
    "expired",
    "cancelled",
]
EndKind = Literal["completed", "expired", "cancelled"]


@dataclass(frozen=True, slots=True)
class Button:
    """A decision that can be pressed right in the message, where the service allows that."""

    action: str
    label: str

    @property
    def approves(self) -> bool:
        """Whether something may happen because of it. ``reject``, ``cancel`` and ``abort`` only stop something."""
        return self.action not in ("reject", "cancel", "abort")


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell a person about a case. Printed, it is its text.

    Whatever a service or an agent wrote into it is data: a delivery escapes it for its platform and renders
    no markup of it.
    """

    kind: NoticeKind
    case_id: str
    body: str
    """What to say, in plain text, without the link."""
    review_url: str | None = field(default=None, repr=False)
    """Where to decide; None when there is nothing left to decide. Whoever has it may answer: never log it."""
    buttons: tuple[Button, ...] = ()
    """For deliveries that show them; empty unless each may be pressed without going to the page.

    One that approves (`Button.approves`) is shown only in a message that is `whole` and has not been cut.
    """
    round: int = 1
    expires_at: float | None = None
    """Seconds since 1970 (UTC)."""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """For deliveries that lay things out: ``type``, ``prompt``, ``message``, ``service`` (its host), and
    ``context``, where it is short."""
    whole: bool = field(default=False, kw_only=True)
    """Whether ``body`` and the ``context`` among the facts are all that is decided on."""

    @property
    def text(self) -> str:
        """All of it as plain text, the link on a line of its own at the end."""
        return self.body if self.review_url is None else f"{self.body}\n\n{self.review_url}"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Sent:
    """A notice on its way: what `Delivery.update` needs to find it again. It can be stored as JSON."""

    delivery: str
    """Which delivery sent it, by name."""
    case_id: str
    place: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    """Where it is, in the delivery's own words, such as a chat and a message's number; no token, no link."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a case ended, for the messages that asked about it."""

    case_id: str
    kind: EndKind
    text: str
    """A sentence for the person, in plain text."""
    action: str | None = None
    by: str | None = None


class Delivery(Protocol):
    """A way to reach a person. Raises `DeliveryError`, which says whether and when to try again, and no secret."""

    name: str
    shows_buttons: bool
    """Whether `Notice.buttons` are shown; if not, the link is all there is."""

    async def send(self, notice: Notice) -> Sent:
        """Send a notice; returns when the platform has taken it."""
        ...

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Let a message that asked say how the case ended; where that cannot be done, do nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Press:
    """A button that a person pressed. Platform and user are what the platform vouches for, never free text."""

    case_id: str
    action: str
    submitted_via: str
    """As in the protocol: ``telegram_inline_button``, ``x-...``."""
    platform: str
    platform_user_id: str
    display_name: str | None = None


@dataclass(frozen=True, slots=True)
class PressAnswer:
    """What came of a press, and what to tell the person who pressed."""

    kind: Literal["done", "to_page", "closed", "failed"]
    """``done`` it counts; ``to_page`` decide on the page instead; ``closed`` too late; ``failed`` try again."""
    text: str
    review_url: str | None = field(default=None, repr=False)


OnPress = Callable[[Press], Awaitable[PressAnswer]]


@runtime_checkable
class PressDelivery(Protocol):
    """A delivery that hears its buttons being pressed."""

    def listening(self, on_press: OnPress) -> AbstractAsyncContextManager[None]:
        """While this is entered, presses are handed on, each once, and their answers shown."""
        ...


Deliver = Delivery | Callable[[Notice], object] | str
"""What a client takes: a delivery, a plain function of the notice, async or not, or a name: ``"telegram"``."""
