"""Reaching a person by e-mail: the link, and what is to be decided behind it."""

from __future__ import annotations

import hashlib
import logging
import ssl
from collections.abc import Sequence
from copy import copy
from email.utils import make_msgid
from html import escape

from askfirst.delivery.base import Ended, Notice, Sent, heading
from askfirst.delivery.text import cut, shown
from askfirst.errors import DeliveryError
from askfirst.smtp import Mail, NotComposed, NotSent, SmtpServer, compose, is_mailable
from askfirst.visible_text import visible

logger = logging.getLogger("askfirst.delivery")
NAME = "email"
_SUBJECT_LIMIT = 150
_BODY_LIMIT = 20_000
_PAGE = """\
<!doctype html>
<html><head><meta charset="utf-8"></head><body>
{}
</body></html>
"""
_PARAGRAPH = '<div style="white-space: pre-wrap; margin: 0 0 1em">{}</div>'
_LINK = '<p><a href="{0}">Open the review page</a></p>\n<p style="overflow-wrap: anywhere">{0}</p>'


class EmailDelivery:
    """Sends mail to one address or several, through the server of ``smtp_url``.

    That is like ``smtp://user:password@host:587``, and nothing is sent unless the connection is encrypted, but
    to this machine or with ``in_clear``; ``smtps`` is encrypted from the beginning. The sender is ``from_``, or
    ``?from=`` in the address, or its user. ``tls`` says whose certificates are trusted. A mail cannot be changed
    once it is sent: when nobody decided, another one in its thread says so; with ``outcomes``, also when somebody
    did. How it goes on meanwhile is not written to anybody.
    """

    name = NAME
    shows_buttons = False

    def __init__(
        self,
        smtp_url: str,
        *,
        to: str | Sequence[str],
        from_: str | None = None,
        in_clear: bool = False,
        tls: ssl.SSLContext | None = None,
        outcomes: bool = False,
    ) -> None:
        self._to = _recipients([to] if isinstance(to, str) else to)
        self._outcomes = outcomes
        try:
            self._server = SmtpServer(smtp_url, sender=from_, in_clear=in_clear, tls=tls)
        except ValueError as error:
            raise DeliveryError(NAME, f"smtp_url {error}", permanent=True) from None
        self._domain = self._server.sender.rpartition("@")[2]
        self._ended: set[str] = set()

    def to(self, target: str) -> EmailDelivery:
        """The same server and sender, to another address."""
        other = copy(self)
        other._to = _recipients([target])
        return other

    async def send(self, notice: Notice) -> Sent:
        """Send a mail. The first of a case begins a thread; if it comes twice, mail programs see that it is one."""
        subject = _subject(notice)
        is_first = notice.kind in ("review", "escalation") and notice.follows is None
        thread = self._thread_of(notice) if notice.follows is None else str(notice.follows.place["thread"])
        if notice.kind != "progress":
            paragraphs = [heading(notice), cut(shown(notice.body).strip(), _BODY_LIMIT)]
            await self._hand_over(
                self._mail(thread, subject, paragraphs, notice.review_url, is_first=is_first)
            )
        place: dict[str, str | int] = {"thread": thread, "subject": subject}
        return Sent(NAME, notice.case_id, place if notice.follows is None else place | {"follows": 1})

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Write that there is nothing left to decide; once for each thread."""
        thread, subject = str(sent.place["thread"]), str(sent.place["subject"])
        is_told = ended.kind != "completed" or self._outcomes
        if not is_told or ended.is_again or sent.place.get("follows") or thread in self._ended:
            return
        self._ended.add(thread)
        paragraphs = [cut(shown(ended.said).strip(), _BODY_LIMIT)]
        try:
            await self._hand_over(self._mail(thread, subject, paragraphs, None, is_first=False))
        except BaseException:
            self._ended.discard(thread)
            raise

    def _thread_of(self, notice: Notice) -> str:
        """The Message-ID of a case's first mail: the same whenever it is sent, and another for every link."""
        about = "\n".join((notice.case_id, notice.review_url or "", *self._to))
        return f"<askfirst.{hashlib.sha256(about.encode()).hexdigest()[:40]}@{self._domain}>"

    def _mail(
        self, thread: str, subject: str, paragraphs: list[str], link: str | None, *, is_first: bool
    ) -> Mail:
        """The mail as text, and the same as HTML, where nothing but our own link can be pressed or loaded."""
        parts = [_PARAGRAPH.format(escape(each)) for each in paragraphs]
        if link:
            parts.append(_LINK.format(escape(link)))
        try:
            return compose(
                self._server.sender,
                self._to,
                subject if is_first else f"Re: {subject}",
                "\n\n".join([*paragraphs, *([link] if link else [])]) + "\n",
                message_id=thread if is_first else make_msgid(domain=self._domain),
                headers={} if is_first else {"In-Reply-To": thread, "References": thread},
                html=_PAGE.format("\n".join(parts)),
            )
        except NotComposed as error:
            raise DeliveryError(NAME, f"the mail could not be written: {error}", permanent=True) from None

    async def _hand_over(self, mail: Mail) -> None:
        try:
            refused = await self._server.hand_over(mail, domain=self._domain)
        except NotSent as error:
            problem = f"the server {self._server.host} did not take the mail ({error})"
            raise DeliveryError(NAME, problem, permanent=error.permanent) from None
        if refused:
            logger.warning("email: %d of %d recipients were refused", refused, len(self._to))


def _recipients(to: Sequence[str]) -> list[str]:
    if not to or not all(is_mailable(each) for each in to):
        problem = "to is an e-mail address such as ann@a.example, or several of them, without =? or blanks"
        raise DeliveryError(NAME, problem, permanent=True)
    return list(to)


def _subject(notice: Notice) -> str:
    """Who asks, and the question, on one line."""
    asked = notice.facts.get("prompt") or notice.body
    line = visible(" ".join(asked.split()))
    who = heading(Notice("review", notice.case_id, "", facts=notice.facts))
    return cut(f"{who}: {line}" if line else who, _SUBJECT_LIMIT)
