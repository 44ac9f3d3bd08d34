"""Notice, Delivery, Press: messages to a person, how they are sent, and answers by button."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, runtime_checkable

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock
from askfirst.delivery.asked import Asked
from askfirst.delivery.fields import Field
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
    "warning": "{} needs a decision soon",
    "escalation": "{} asks for a decision that nobody has made yet",
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
    "warning",  # the same again, shortly before the deadline
    "escalation",  # the same for somebody else, as nobody has decided yet
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
    fields: tuple[Field, ...] = ()
    """What the person fills in before it counts. A delivery that has no forms leaves such a button out."""
    confirm: str | None = None
    """What the person is asked once more before it counts. A delivery that cannot ask leaves such a button out."""

    @property
    def is_plain(self) -> bool:
        """Whether one press is all it takes."""
        return not self.fields and self.confirm is None

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
    asked: Asked | None = field(default=None, kw_only=True)
    """What ``body`` says, in parts, for deliveries that lay it out; None in a client, which has the body only."""
    follows: Sent | None = field(default=None, kw_only=True)
    """The first message about this case in the same place, if this is another one: a thread's beginning."""

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
    outcome: str | None = None
    """What came of it, as a sentence, once that is known."""
    is_again: bool = False
    """Whether the messages were updated before, and only ``outcome`` is new."""

    @property
    def said(self) -> str:
        """How it ended, and what came of it."""
        return self.text if self.outcome is None else f"{self.text} {self.outcome}"


class Delivery(Protocol):
    """A way to reach a person: of an agent's process (the client), or of the service.

    Raises `DeliveryError`, which says whether and when to try again, and no secret; whatever else it raises is taken
    for a failure that is worth another try.

    The service stores what is to be sent before it calls `send`, and the `Sent` that comes back. Any process may make
    any of the calls, each at least once, and the same one again if a process died before it noted the outcome; two
    processes do not make the same call at the same time. So a delivery keeps nothing in memory that a later call
    needs: `Sent.place` says where the message is. Calls about different cases come side by side.
    """

    name: str
    shows_buttons: bool
    """Whether `Notice.buttons` are shown; if not, the link is all there is."""

    async def send(self, notice: Notice) -> Sent:
        """Send a notice; returns when the platform has taken it.

        A reminder, a warning and an escalation are notices, too. ``notice.follows`` is then the first message about
        the case in this place, where there is one.
        """
        ...

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Update a message that asked with the outcome; does nothing where that is impossible.

        It is called when the case was decided, wherever that was, and perhaps once more when it is known what came
        of it (`Ended.is_again`). To do the same again changes nothing.
        """
        ...


@runtime_checkable
class AddressedDelivery(Protocol):
    """A delivery that can reach others, too: ``slack:#ops`` is the delivery named ``slack``, to ``#ops``."""

    def to(self, target: str) -> Delivery:
        """The same delivery to another channel, chat or address; raises `DeliveryError` if it is none."""
        ...


@runtime_checkable
class StoredDelivery(Protocol):
    """A delivery that keeps something of its own, such as what the data of a button means."""

    def stored_in(self, store: CheckpointKeeper, clock: Clock) -> Self:
        """The same delivery, keeping that in an open store, where every process finds it."""
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
    shown: str | None = None
    """The digest of what stood in the message (`Asked.shown`): the service takes no press without it."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What the person filled in besides: ``feedback``, ``edits``, the fields of a form."""
    email: str | None = None
    """The person's address, where the platform itself has confirmed it."""

    @property
    def account(self) -> str:
        """The person's account, as the lists of those who may decide have it: ``telegram:1001``."""
        return f"{self.platform}:{self.platform_user_id}"


@dataclass(frozen=True, slots=True)
class PressAnswer:
    """What came of a press, and what to tell the person who pressed."""

    kind: Literal["done", "to_page", "refused", "closed", "failed"]
    """``done`` it counts; ``to_page`` decide on the page instead; ``refused`` this person may not, tell nobody else;
    ``closed`` too late; ``failed`` try again."""
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
