"""The Microsoft Teams delivery: an Adaptive Card with the link, through the webhook of a channel."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from askfirst.delivery.base import Ended, Notice, Sent, heading
from askfirst.delivery.text import cut, shown
from askfirst.errors import DeliveryError, MissingExtra
from askfirst.loopback import LOOPBACK_HOSTS

if TYPE_CHECKING:
    import httpx2

NAME = "teams"
SECONDS = 15.0
CARD_BYTES = 25_000
"""The largest card. Teams refuses a message of more than 28 KB."""
_TEXT_LIMIT = 6_000
_LEAST_TEXT = 100
_RETRIED_STATUSES = {408, 425, 429}


class TeamsDelivery:
    """Posts to a channel through its webhook. ``url`` is the webhook's address from Teams' *Workflows*, a secret.

    A webhook takes no presses and cannot change a message. So a card has one button, which opens the page, and a
    second card says how the case ended. Teams renders no link, mention or markup in its text. ``in_clear`` allows
    ``http``, which is always allowed to this machine.
    """

    name = NAME
    shows_buttons = False

    def __init__(self, url: str, *, in_clear: bool = False, http: httpx2.AsyncClient | None = None) -> None:
        at = urlsplit(url)
        allowed = in_clear or at.hostname in LOOPBACK_HOSTS
        if not at.hostname or at.scheme not in (("http", "https") if allowed else ("https",)):
            raise DeliveryError(
                NAME, "url must be the https address that Teams gave for the channel", permanent=True
            )
        self._url = url
        self._http = http
        self._tls: ssl.SSLContext | None = None

    async def send(self, notice: Notice) -> Sent:
        """Post a card."""
        if notice.kind != "progress":
            await self._post(asking_card(notice))
        return Sent(NAME, notice.case_id, {"heading": heading(notice)})

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Post another card that says how the case ended: once, and not again for the outcome of the call."""
        if not ended.is_again:
            title = str(sent.place.get("heading", "A review"))
            await self._post(card([*lines(title, is_bold=True), *lines(_ending(ended))], None))

    async def _post(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        if self._http is not None:
            await self._send(self._http, body)
            return
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise MissingExtra("Teams", "delivery") from error
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context)
        async with httpx2.AsyncClient(verify=self._tls) as http:
            await self._send(http, body)

    async def _send(self, http: httpx2.AsyncClient, body: bytes) -> None:
        import httpx2

        headers = {"content-type": "application/json"}
        try:
            async with asyncio.timeout(SECONDS):
                response = await http.post(self._url, content=body, headers=headers, follow_redirects=False)
        except TimeoutError:
            raise DeliveryError(NAME, f"Teams did not answer within {SECONDS:g} seconds") from None
        except (httpx2.HTTPError, OSError) as error:
            raise DeliveryError(NAME, f"Teams could not be reached ({type(error).__name__})") from None
        status = response.status_code
        if not 200 <= status < 300:
            is_final = 300 <= status < 500 and status not in _RETRIED_STATUSES
            wait = response.headers.get("retry-after", "")
            raise DeliveryError(
                NAME,
                f"Teams answered {status}",
                retry_after=float(wait) if wait.isdigit() else None,
                permanent=is_final,
            )


def _ending(ended: Ended) -> str:
    return cut(shown(ended.said).strip(), _TEXT_LIMIT)


def asking_card(notice: Notice) -> dict[str, Any]:
    """The card of a notice. If it is too large, its text is cut, with a note."""
    limit = _TEXT_LIMIT
    while True:
        text = cut(shown(notice.body).strip(), limit)
        made = card([*lines(heading(notice), is_bold=True), *lines(text)], notice.review_url)
        if len(json.dumps(made).encode()) <= CARD_BYTES or limit < _LEAST_TEXT:
            return made
        limit //= 2


def lines(text: str, *, is_bold: bool = False) -> list[dict[str, Any]]:
    """A text as one block for each line. Teams renders Markdown in a `TextBlock`, but not in a `TextRun`."""
    weight = {"weight": "Bolder"} if is_bold else {}
    return [
        {
            "type": "RichTextBlock",
            "inlines": [{"type": "TextRun", "text": line or " ", **weight}],
            "spacing": "Small" if line else "Medium",
        }
        for line in text.split("\n")
    ]


def card(body: list[dict[str, Any]], link: str | None) -> dict[str, Any]:
    """A message with one Adaptive Card."""
    content: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    if link is not None:
        content["actions"] = [{"type": "Action.OpenUrl", "title": "Open the page", "url": link}]
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": content,
    }
    return {"type": "message", "attachments": [attachment]}
