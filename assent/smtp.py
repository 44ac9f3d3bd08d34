"""Handing mail to a server: by SMTP, over an encrypted connection."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import parse_qs, unquote, urlsplit

from assent.errors import MissingExtra
from assent.mail import Mail, is_mailable

SMTP_SECONDS = 15.0
"""For each word of the server's; all of them together may take twice as long."""
_PORTS = {"smtp": 587, "smtps": 465}
_HERE = ("localhost", "127.0.0.1", "::1")


class NotSent(Exception):
    """A mail that the server did not take. Nothing that was said is kept: it may quote the mail."""

    def __init__(self, kind: str, code: int | None, *, permanent: bool) -> None:
        super().__init__(kind if code is None else f"{kind}, {code}")
        self.kind = kind
        """What happened, as the library calls it."""
        self.code = code
        """The server's, where it gave one."""
        self.permanent = permanent


class SmtpServer:
    """The server of an address like ``smtp://user:password@host:587?from=me@a.example``.

    ``smtps`` is encrypted from the beginning. ``smtp`` is after its greeting, and sends nothing if the server
    cannot; but to this machine, or with ``in_clear``, it does. Without ``from``, the user has to be an address.
    ``tls`` says whose certificates are trusted, by default those of the well-known authorities. Raises
    ``ValueError``, which does not quote the address, for it may hold a password.
    """

    extra = "delivery"
    """Which extra brings what it takes to send."""

    def __init__(
        self,
        url: str,
        *,
        sender: str | None = None,
        in_clear: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        try:
            at = urlsplit(url)
            port = at.port
        except ValueError:
            at, port = urlsplit(""), None
        user = unquote(at.username) if at.username else None
        self.sender = sender or parse_qs(at.query).get("from", [user or ""])[0]
        if at.scheme not in _PORTS or not at.hostname or not is_mailable(self.sender):
            raise ValueError(
                "is like smtp://user:password@host:587 or smtps://host, with ?from=me@a.example "
                "unless the user is an address; an address has no =? and no blanks in it"
            )
        self.host = at.hostname
        self._implicit = at.scheme == "smtps"
        self._port = port or _PORTS[at.scheme]
        self._user, self._password = user, unquote(at.password) if at.password else None
        self._in_clear = not self._implicit and (in_clear or at.hostname in _HERE)
        self._tls = tls

    async def hand_over(self, mail: Mail, *, domain: str) -> int:
        """Give the server a mail; returns how many of its recipients were refused, though not all of them.

        ``domain`` is who we are. Raises `NotSent`.
        """
        try:
            import aiosmtplib
        except ModuleNotFoundError as error:
            raise MissingExtra("Sending mail", self.extra) from error
        ascii_only = "".join((mail.sender, *mail.to)).isascii()
        if self._tls is None:  # reading all the authorities' certificates takes a while
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        try:
            async with asyncio.timeout(2 * SMTP_SECONDS):
                refused, _ = await aiosmtplib.send(
                    mail.content,
                    sender=mail.sender,
                    recipients=list(mail.to),
                    mail_options=None if ascii_only else ["SMTPUTF8"],
                    hostname=self.host,
                    port=self._port,
                    username=self._user,
                    password=self._password,
                    use_tls=self._implicit,
                    # None encrypts if the server can.
                    start_tls=False if self._implicit else None if self._in_clear else True,
                    tls_context=self._tls,
                    local_hostname=domain,  # else it would ask the network for one
                    timeout=SMTP_SECONDS,
                )
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            problem = _problem(error)
        else:
            return len(refused)
        raise problem


def _problem(error: Exception) -> NotSent:
    import aiosmtplib

    kind = type(error).__name__
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        codes = [each.code for each in error.recipients]
        return NotSent(kind, codes[0], permanent=all(code >= 500 for code in codes))
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return NotSent(kind, error.code, permanent=error.code >= 500)
    passing = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
    return NotSent(kind, None, permanent=not passing)
