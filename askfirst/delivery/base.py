"""Notice, Delivery, Press: messages to a person, how they are sent, and answers by button."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from askfirst.delivery.text import cut
from askfirst.visible_text import visible

# Links that may be given to a terminal or a browser.


_WEB_LINK = re.compile(r"https?://[!-~]+", re.IGNORECASE)


def is_web_link(url: str) -> bool:
    """Whether this is a web address without deceptive characters.

    Only printable ASCII without blanks: no control character ends it early, no letter looks like another.
    """
    return _WEB_LINK.fullmatch(url) is not None


# The heading of a notice.


_LIMIT = 120
_WORDS = {
    "review": "{} asks for a decision",
    "reminder": "{} still waits for a decision",
    "progress": "{}: a review goes on",
    "completed": "{}: a review was decided",
    "expired": "{}: a review was not decided in time",
    "cancelled": "{}: a review was cancelled",
}


def heading(notice: Notice) -> str:
    """Such as ``books.example asks for a decision``."""
    who = cut(visible(notice.facts.get("service") or "A service"), _LIMIT)
    return _WORDS[notice.kind].format(who)


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
        """Whether it lets something run. ``reject``, ``cancel`` and ``abort`` only stop something."""
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
    """The review page; None when nothing is left to decide. The link is the power to answer: never log it."""
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
    """A notice that was sent: what `Delivery.update` needs to find it again. It can be stored as JSON."""

    delivery: str
    """Which delivery sent it, by name."""
    case_id: str
    place: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    """Where the message is, such as chat and message id; no token, no link."""


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
        """Update a message that asked with the outcome; does nothing where that is impossible."""
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
    """A delivery with buttons."""

    def listening(self, on_press: OnPress) -> AbstractAsyncContextManager[None]:
        """Within this context, each press is passed on once, and its answer is shown."""
        ...


Deliver = Delivery | Callable[[Notice], object] | str
"""What a client takes: a delivery, a plain function of the notice, async or not, or a name: ``"telegram"``."""
