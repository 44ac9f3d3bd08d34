"""The e-mail delivery: a mail with the decision and the link to its page."""

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
_ASKER_LIMIT = 60
_BODY_LIMIT = 20_000
_PAGE = """\
<!doctype html>
<html><head><meta charset="utf-8"></head><body>
{}
</body></html>
"""
_HEADING = '<h1 style="white-space: pre-wrap; font-size: 1.25em; margin: 0 0 .75em">{}</h1>'
_PARAGRAPH = '<div style="white-space: pre-wrap; margin: 0 0 1em">{}</div>'
_LINK = (
    '<p><a href="{0}" style="display: inline-block; padding: .75em 1.5em; border-radius: .5em; '
    'background: #14653f; color: #ffffff; font-weight: 600; text-decoration: none">Look at it</a></p>\n'
    '<p style="overflow-wrap: anywhere; font-size: .875em; color: #5c6560">{0}</p>'
)
"""One button, which opens the page.

A mail has no deciding links, because mail programs follow links by themselves.
"""


class EmailDelivery:
    """Sends mail to one address or several, through the server of ``smtp_url``.

    ``smtp_url`` is like ``smtp://user:password@host:587``; ``smtps`` is encrypted from the beginning. Nothing is sent
    over a connection that is not encrypted, unless to this machine or with ``in_clear``. The sender is ``from_``, or
    ``?from=`` in the URL, or its user. ``tls`` has the trusted certificate authorities. A mail cannot be changed
    later: if nobody decided, another mail in its thread says so; with ``outcomes``, also if somebody did. Progress
    notices are not sent.
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
        """Send a mail.

        The first mail of a case begins a thread. A retry has the same Message-ID, so programs show one.
        """
        subject = _subject(notice)
        is_first = notice.kind in ("review", "escalation") and notice.follows is None
        thread = self._thread_of(notice) if notice.follows is None else str(notice.follows.place["thread"])
        if notice.kind != "progress":
            paragraphs = _paragraphs(notice)
            await self._hand_over(
                self._mail(thread, subject, paragraphs, notice.review_url, is_first=is_first)
            )
        place: dict[str, str | int] = {"thread": thread, "subject": subject}
        return Sent(NAME, notice.case_id, place if notice.follows is None else place | {"follows": 1})

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Send a mail that the case has ended, once for each thread."""
        thread, subject = str(sent.place["thread"]), str(sent.place["subject"])
        is_sent = ended.kind != "completed" or self._outcomes
        if not is_sent or ended.is_again or sent.place.get("follows") or thread in self._ended:
            return
        self._ended.add(thread)
        paragraphs = [cut(shown(ended.said).strip(), _BODY_LIMIT)]
        try:
            await self._hand_over(self._mail(thread, subject, paragraphs, None, is_first=False))
        except BaseException:
            self._ended.discard(thread)
            raise

    def _thread_of(self, notice: Notice) -> str:
        """The Message-ID of a case's first mail. It is the same for every attempt, and differs for every link."""
        about = "\n".join((notice.case_id, notice.review_url or "", *self._to))
        return f"<askfirst.{hashlib.sha256(about.encode()).hexdigest()[:40]}@{self._domain}>"

    def _mail(
        self, thread: str, subject: str, paragraphs: list[str], link: str | None, *, is_first: bool
    ) -> Mail:
        """The mail as text and as HTML. The HTML loads nothing, and has no link but ours."""
        first, *more = paragraphs
        parts = [_HEADING.format(escape(first)), *(_PARAGRAPH.format(escape(each)) for each in more)]
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
        problem = "to must be one or several e-mail addresses such as ann@a.example, without =? or spaces"
        raise DeliveryError(NAME, problem, permanent=True)
    return list(to)


def _subject(notice: Notice) -> str:
    """The subject in one line: the decision, then who asks."""
    if notice.contents is not None:
        asked, asker = notice.contents.said, notice.contents.asker
    else:
        asked, asker = notice.facts.get("prompt") or notice.body, notice.facts.get("service")
    line = visible(" ".join(asked.split()))
    who = "" if not asker else f" · {cut(visible(' '.join(asker.split())), _ASKER_LIMIT)} asks"
    return cut(line, _SUBJECT_LIMIT - len(who)) + who if line else heading(notice)


def _paragraphs(notice: Notice) -> list[str]:
    """The paragraphs of the mail: the decision first; last, the heading, which names the service and the kind."""
    said = [notice.body] if notice.contents is None else notice.contents.paragraphs
    room, kept = _BODY_LIMIT, list[str]()
    for text in map(shown, said):
        if room > 0 and text.strip():
            kept.append(cut(text, room))
            room -= len(text)
    return [*kept, f"{heading(notice)}."]
