"""Notice, Delivery, Press: a message to a person, the protocol that sends it, and a button that was pressed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, runtime_checkable

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock
from askfirst.delivery.contents import Contents
from askfirst.delivery.fields import Field
from askfirst.delivery.text import cut
from askfirst.visible_text import visible

# Links that are safe to give to a terminal or a browser.


_WEB_LINK = re.compile(r"https?://[!-~]+", re.IGNORECASE)


def is_web_link(url: str) -> bool:
    """Whether a URL is a web address without deceptive characters.

    It must be printable ASCII without spaces: no control character can end it early, and no letter looks like
    another.
    """
    return _WEB_LINK.fullmatch(url) is not None


# The heading of a notice.


_SERVICE_LIMIT = 120
_HEADINGS = {
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
    """The heading of a notice, such as ``books.example asks for a decision``."""
    who = cut(visible(notice.facts.get("service") or "A service"), _SERVICE_LIMIT)
    return _HEADINGS[notice.kind].format(who)


NoticeKind = Literal[
    "review",  # please decide, here is the link
    "reminder",  # the same again, because nobody has decided yet
    "warning",  # the same again, shortly before the deadline
    "escalation",  # the same for another person, because nobody has decided yet
    "progress",  # somebody opened the page, or is filling in the form
    "completed",
    "expired",
    "cancelled",
]
EndKind = Literal["completed", "expired", "cancelled"]
OPEN_LABEL = "Open the page"
APPROVE_LABEL = "Approve on the page"
"""The labels of a message's button that opens the page. The second is used if the message has no approving button."""


@dataclass(frozen=True, slots=True)
class Button:
    """A button of a message. It makes a decision without the page, if the service allows that."""

    action: str
    label: str
    fields: tuple[Field, ...] = ()
    """The fields that the person fills in before the press counts. A delivery without forms leaves the button out."""
    confirm: str | None = None
    """A question that the person confirms before the press counts.

    A delivery that cannot ask leaves the button out.
    """

    @property
    def is_plain(self) -> bool:
        """Whether one press is enough: the button has no fields and no confirmation."""
        return not self.fields and self.confirm is None

    @property
    def approves(self) -> bool:
        """Whether the button approves or continues something. ``reject``, ``cancel`` and ``abort`` only stop it."""
        return self.action not in ("reject", "cancel", "abort")


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to a person about a case. ``str()`` gives its text.

    Texts of a service or an agent in it are untrusted data: a delivery escapes them for its platform and renders no
    markup in them.
    """

    kind: NoticeKind
    case_id: str
    body: str
    """The message as plain text, without the link."""
    review_url: str | None = field(default=None, repr=False)
    """The link to the review page; None if nothing is left to decide. Never log it: whoever has it can answer."""
    buttons: tuple[Button, ...] = ()
    """The buttons, for deliveries that show them; empty if the case has to be decided on the page.

    A button that approves (`Button.approves`) is shown only in a message that is `whole` and was not cut.
    """
    round: int = 1
    expires_at: float | None = None
    """The deadline, in seconds since 1970 (UTC)."""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parts of the message, for deliveries with a layout of their own: ``type``, ``prompt``, ``message``, ``service``
    (its host), and ``context`` if it is short."""
    whole: bool = field(default=False, kw_only=True)
    """Whether ``body`` and the ``context`` in ``facts`` show everything that is decided on."""
    contents: Contents | None = field(default=None, kw_only=True)
    """The contents of ``body`` in parts, for deliveries with a layout of their own; None in a client, which has only
    the body."""
    follows: Sent | None = field(default=None, kw_only=True)
    """The first message in the same place about this case or its previous round: it begins a thread there."""

    @property
    def text(self) -> str:
        """The whole message as plain text, with the link on a line of its own at the end."""
        return self.body if self.review_url is None else f"{self.body}\n\n{self.review_url}"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Sent:
    """A sent notice: the place of its message, for `Delivery.update`. It can be stored as JSON."""

    delivery: str
    """The name of the delivery that sent it."""
    case_id: str
    place: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    """The place of the message, such as its chat and message id, without tokens and links."""


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
    """The outcome of the approved call as a sentence, once it is known."""
    is_again: bool = False
    """Whether this is a second update of the same messages, in which only ``outcome`` is new."""

    @property
    def said(self) -> str:
        """The text and the outcome."""
        return self.text if self.outcome is None else f"{self.text} {self.outcome}"


class Delivery(Protocol):
    """A way to reach a person, used by an agent's process (the client) or by the service.

    Raises `DeliveryError`, which says whether and when to retry, and contains no secret. Any other exception counts
    as a failure that is worth a retry.

    The service stores a message before it calls `send`, and stores the `Sent` that `send` returns (an outbox). Every
    call is made at least once, by any process. It is made again if a process died before it stored the outcome. A
    lease keeps two processes from making the same call at the same time. So a delivery keeps nothing in memory that a
    later call needs: `Sent.place` says where the message is. Calls about different cases run concurrently.
    """

    name: str
    shows_buttons: bool
    """Whether `Notice.buttons` are shown. If not, a message has only the link."""

    async def send(self, notice: Notice) -> Sent:
        """Send a notice; returns when the platform has accepted it.

        A reminder, a warning and an escalation are notices, too. Their ``notice.follows`` is the first message about
        the case in this place, if there is one.
        """
        ...

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Update a message with the end of its case; does nothing if the platform cannot change messages.

        It is called when the case has ended, on whatever surface, and perhaps once more when the outcome of the call
        is known (`Ended.is_again`). It is idempotent: the same call again changes nothing.
        """
        ...


@runtime_checkable
class AddressedDelivery(Protocol):
    """A delivery that can send to other targets, too: ``slack:#ops`` is the delivery ``slack``, to ``#ops``."""

    def to(self, target: str) -> Delivery:
        """The same delivery to another channel, chat or address; raises `DeliveryError` for an invalid target."""
        ...


@runtime_checkable
class StoredDelivery(Protocol):
    """A delivery that stores data of its own, such as the meaning of its buttons."""

    def stored_in(self, store: CheckpointKeeper, clock: Clock) -> Self:
        """The same delivery with its data in an open store, which every process shares."""
        ...


@dataclass(frozen=True, slots=True)
class Press:
    """A press of a button by a person. The platform itself has verified the user id; it is never free text."""

    case_id: str
    action: str
    submitted_via: str
    """The protocol's name of the surface: ``telegram_inline_button``, ``x-...``."""
    platform: str
    platform_user_id: str
    display_name: str | None = None
    shown: str | None = None
    """The digest of what the message showed (`Contents.shown`). The service accepts no press without it."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What the person filled in: ``feedback``, ``edits``, the fields of a form."""
    email: str | None = None
    """The person's e-mail address, if the platform has confirmed it."""
    sent: Sent | None = field(default=None, compare=False)
    """The message whose button was pressed. It is needed if the sender died before it stored the message's place."""

    @property
    def account(self) -> str:
        """The person's account as a place's ``deciders`` name it: ``telegram:1001``."""
        return f"{self.platform}:{self.platform_user_id}"


@dataclass(frozen=True, slots=True)
class PressAnswer:
    """The result of a press, and the text for the person who pressed."""

    kind: Literal["done", "to_page", "refused", "closed", "failed"]
    """``done``: the press counts. ``to_page``: decide on the page instead. ``refused``: this person may not decide;
    show it to them alone. ``closed``: too late. ``failed``: try again."""
    text: str
    review_url: str | None = field(default=None, repr=False)


CLOSED = "This is decided already, or its time is up."
UNKNOWN = "This request is no longer known here. Nothing was changed."
FAILED = "It is not certain that this counted. Try again, or open the page."
"""What a messenger tells a person whose press came too late, is about a deleted request, or may not have counted."""

OnPress = Callable[[Press], Awaitable[PressAnswer]]


@runtime_checkable
class PressDelivery(Protocol):
    """A delivery with buttons."""

    def listening(self, on_press: OnPress) -> AbstractAsyncContextManager[None]:
        """Within this context, pass each press to ``on_press`` once, and show its answer to the person."""
        ...


OnPending = Callable[[str], Awaitable[str]]
"""Takes an account, such as ``slack:T024BE7LD:U2147483697``, and returns a text with the open requests."""


@runtime_checkable
class PendingDelivery(Protocol):
    """A delivery whose platform has a command that lists open requests: ``/askfirst pending``."""

    def answering_pending(self, on_pending: OnPending) -> Delivery:
        """The same delivery, which answers that command with ``on_pending`` while it is listening."""
        ...


@runtime_checkable
class RequestsDelivery(Protocol):
    """A delivery whose button presses may come as signed HTTP requests (webhooks)."""

    takes_requests: bool
    """Whether they do. Then every process handles presses, and no lease on listening is needed."""

    def request_app(self) -> Any:
        """The ASGI application that takes the requests and checks their signatures."""
        ...


Deliver = Delivery | Callable[[Notice], object] | str
"""What ``deliver=`` accepts: a delivery, a function of the notice (async or not), or a name: ``"telegram"``."""
