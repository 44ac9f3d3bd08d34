"""The Apprise delivery: notices to one or several Apprise URLs, such as ``discord://…``."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from typing import TYPE_CHECKING, Any

from askfirst.delivery.base import Ended, Notice, Sent, heading
from askfirst.delivery.text import cut, shown
from askfirst.errors import DeliveryError, MissingExtra

if TYPE_CHECKING:
    from apprise import NotifyBase


# The target of one Apprise URL. The URL is a secret, so no error and no log record contains it.


NAME = "apprise"
_BODY_LIMIT = 20_000
_LEAST_TEXT = 60
_RENDER_MARKDOWN = {"Discord", "Guilded", "Mattermost", "Zulip"}
"""Services that render Markdown although Apprise says that they take plain text."""
_MARKDOWN = re.compile(r"([\\_*\[\]()~`<>#+=|{}.!-]|&(?=#?\w+;))")
_MENTION = re.compile(r"(?<![\w.+-])@(?=[\w&!])")
"""The beginning of a mention such as ``@everyone``. In an e-mail address a letter comes before the ``@``."""
_STATUS = re.compile(r"\berror=(\d{3})\b")
"""The HTTP status in a log record of Apprise, which does not raise it."""
_RETRIED_STATUSES = {408, 425, 429}
_QUOTING_LOGGERS = ("apprise", "urllib3.connectionpool")
"""Loggers whose records may quote URLs and messages."""

_captured: ContextVar[list[str] | None] = ContextVar("askfirst_apprise_captured", default=None)


def targets_of(urls: Sequence[str]) -> list[AppriseTarget]:
    """The targets of Apprise URLs. Slow, because it imports Apprise. Raises `DeliveryError` for an invalid URL."""
    try:
        from apprise import Apprise, AppriseAsset
    except ModuleNotFoundError as error:
        raise MissingExtra("Apprise", "delivery") from error
    for name in _QUOTING_LOGGERS:
        logging.getLogger(name).addFilter(_capture)
    library: Any = Apprise
    asset = AppriseAsset(app_id="Askfirst", app_desc="Askfirst", app_url="", async_mode=False)
    targets: list[AppriseTarget] = []
    for number, url in enumerate(urls, start=1):
        with _capturing_log():
            plugin = library.instantiate(url, asset=asset)
        if plugin is None:
            raise DeliveryError(NAME, f"Apprise cannot use the URL number {number}", permanent=True)
        targets.append(AppriseTarget(plugin))
    return targets


class AppriseTarget:
    """The target of one Apprise URL."""

    def __init__(self, plugin: NotifyBase) -> None:
        from apprise import Apprise, NotifyFormat

        self._plugin = plugin
        self._sender: Any = Apprise(plugin)
        self._service = str(plugin.service_name)
        self._format: Any = plugin.resolve_format(NotifyFormat.TEXT)
        markdown = self._format == NotifyFormat.MARKDOWN or self._service in _RENDER_MARKDOWN
        self._is_html = self._format == NotifyFormat.HTML
        self._escape = _html if self._is_html else _markdown if markdown else str
        self._link = _html_link if self._is_html else _markdown_link if markdown else str

    def send(self, notice: Notice) -> DeliveryError | None:
        """Send a notice, and wait for the server; returns the error, or None on success."""
        with _capturing_log() as said:
            try:
                title, body = self._within_limits(notice)
                if self._sender.notify(body=body, title=title, body_format=self._format):
                    return None
            except DeliveryError as error:
                return error
            except (
                Exception
            ) as error:  # an error of a plug-in; its text may quote the URL, so only the type is kept
                said.append(type(error).__name__)
        status = next((int(found[1]) for line in said if (found := _STATUS.search(line))), None)
        problem = f"{self._service} did not take the message" + (f" ({status})" if status else "")
        is_final = status is not None and 400 <= status < 500 and status not in _RETRIED_STATUSES
        return DeliveryError(NAME, problem, permanent=is_final)

    def _within_limits(self, notice: Notice) -> tuple[str, str]:
        """Title and body within the limits.

        The link is never cut; the text is cut first, then the title is left out.
        """
        title = heading(notice)
        if self._plugin.title_maxlen <= 0:  # Apprise puts the title into the body
            title = self._escape(title)
        elif self._plugin.title_maxlen < len(title):
            title = cut(title, self._plugin.title_maxlen)
        gap = "<br/><br/>" if self._is_html else "\n\n"
        end = gap + self._link(notice.review_url) if notice.review_url else ""
        room = min(self._plugin.body_maxlen, _BODY_LIMIT) - len(end)
        if room < len(title) + _LEAST_TEXT:
            title = ""
        else:
            room -= len(title) + len(gap)  # always: some services limit title and body together
        if room < 0:
            raise DeliveryError(NAME, f"the link is too long for {self._service}", permanent=True)
        text = cut(shown(notice.body).strip(), room, measure=lambda text: len(self._escape(text)))
        return title, (self._escape(text) + end).removeprefix(gap)


def _html(text: str) -> str:
    return escape(text).replace("\n", "<br/>")


def _html_link(url: str) -> str:
    return f'<a href="{escape(url)}">{escape(url)}</a>'


def _markdown(text: str) -> str:
    """Text without markup and without mentions: a space after the ``@`` keeps it from notifying a channel."""
    return _MARKDOWN.sub(r"\\\1", _MENTION.sub("@ ", text))


def _markdown_link(url: str) -> str:
    return f"<{url}>"


@contextmanager
def _capturing_log() -> Generator[list[str]]:
    """Within this context, capture Apprise's log records and do not log them: they may quote URLs and messages."""
    said: list[str] = []
    before = _captured.set(said)
    try:
        yield said
    finally:
        _captured.reset(before)


def _capture(record: logging.LogRecord) -> bool:
    """A log filter: within `_capturing_log` it keeps a record's text and drops the record."""
    said = _captured.get()
    if said is not None:
        said.append(record.getMessage())
    return said is None


SECONDS = 45.0
"""The time-out for all targets together. Each target has time-outs of its own, too."""


class AppriseDelivery:
    """Sends to all ``urls``, each an Apprise URL such as ``discord://…`` or ``ntfy://…``.

    If only some targets accepted a notice, a retry goes to the others alone. A message cannot be changed later: if
    nobody decided, another message says so; with ``outcomes``, also if somebody did. Progress notices are not sent.
    """

    name = NAME
    shows_buttons = False

    def __init__(self, urls: str | Sequence[str], *, outcomes: bool = False) -> None:
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        if not self._urls or not all("://" in url for url in self._urls):
            raise DeliveryError(NAME, "urls must be one or several URLs such as discord://…", permanent=True)
        self._outcomes = outcomes
        self._targets: list[AppriseTarget] | None = None
        self._accepted: dict[tuple[str, str, str], set[int]] = {}
        """By case, kind and body: the targets that accepted a notice while others did not. A retry skips them."""
        self._ended: set[str] = set()

    async def send(self, notice: Notice) -> Sent:
        """Send to each target that has not accepted this notice yet; raises if one fails."""
        if notice.kind != "progress":
            await self._send(notice)
        return Sent(NAME, notice.case_id)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Send a message that the case has ended, once for each case."""
        for key in [key for key in self._accepted if key[0] == ended.case_id and key[1] != ended.kind]:
            del self._accepted[key]
        is_sent = ended.kind != "completed" or self._outcomes
        if not is_sent or ended.is_again or ended.case_id in self._ended:
            return
        self._ended.add(ended.case_id)
        try:
            await self._send(Notice(ended.kind, ended.case_id, ended.said))
        except BaseException:
            self._ended.discard(ended.case_id)
            raise

    async def _send(self, notice: Notice) -> None:
        if self._targets is None:
            self._targets = await asyncio.to_thread(targets_of, self._urls)
        key = (notice.case_id, notice.kind, notice.body)
        accepted = self._accepted.setdefault(key, set())
        try:
            async with asyncio.timeout(SECONDS):
                problems = await asyncio.gather(
                    *(
                        self._send_to(number, target, notice, accepted)
                        for number, target in enumerate(self._targets)
                        if number not in accepted
                    )
                )
        except TimeoutError:
            raise DeliveryError(NAME, f"no answer within {SECONDS:g} seconds") from None
        wrong = [problem for problem in problems if problem is not None]
        if wrong:
            # Raise a temporary error rather than a permanent one: a retry can help the target that it is about.
            raise next((each for each in wrong if not each.permanent), wrong[0])
        self._accepted.pop(key, None)

    async def _send_to(
        self, number: int, target: AppriseTarget, notice: Notice, accepted: set[int]
    ) -> DeliveryError | None:
        problem = await asyncio.to_thread(target.send, notice)  # Apprise blocks while it waits for a server
        if problem is None:
            accepted.add(number)
        return problem
