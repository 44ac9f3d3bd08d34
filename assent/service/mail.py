"""Sending a mail: by SMTP, over an encrypted connection."""

from __future__ import annotations

import asyncio
import logging
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from urllib.parse import parse_qs, unquote, urlsplit

from assent.errors import MissingExtra, ServiceError
from assent.protocol.scalars import is_email

logger = logging.getLogger("assent.service")
SMTP_VARIABLE = "ASSENT_SMTP_URL"
SMTP_SECONDS = 15.0
_PORTS = {"smtp": 587, "smtps": 465}
_HERE = ("localhost", "127.0.0.1", "::1")


class Mailer:
    """Sends mail through the server of an address like ``smtp://user:password@host:587?from=me@a.example``.

    ``smtps`` is encrypted from the beginning. ``smtp`` is after its greeting, and sends nothing if the server
    cannot; but to this machine, or with ``in_clear``, it does. Without ``from``, the user has to be an address.
    """

    def __init__(self, url: str, *, in_clear: bool = False) -> None:
        try:
            at = urlsplit(url)
            port = at.port
        except ValueError:
            at, port = urlsplit(""), None
        user = unquote(at.username) if at.username else None
        self._sender = parse_qs(at.query).get("from", [user or ""])[0]
        if at.scheme not in _PORTS or not at.hostname or not is_email(self._sender):  # it may hold a password
            raise ServiceError(
                "smtp_url is like smtp://user:password@host:587 or smtps://host, with ?from=me@a.example "
                "unless the user is an address"
            )
        self._implicit = at.scheme == "smtps"
        self._host, self._port = at.hostname, port or _PORTS[at.scheme]
        self._user, self._password = user, unquote(at.password) if at.password else None
        self._in_clear = not self._implicit and (in_clear or at.hostname in _HERE)

    async def send(self, to: str, subject: str, text: str, *, domain: str) -> bool:
        """Send a mail; False, with a line in the log, if it could not be. ``domain`` is who we are."""
        try:
            import aiosmtplib
        except ModuleNotFoundError as error:
            raise MissingExtra("Sending mail", "service") from error
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = self._sender, to, subject
        mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain=domain)
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(text)
        try:
            await aiosmtplib.send(
                mail,
                hostname=self._host,
                port=self._port,
                username=self._user,
                password=self._password,
                use_tls=self._implicit,
                # None encrypts if the server can.
                start_tls=False if self._implicit else None if self._in_clear else True,
                tls_context=await asyncio.to_thread(ssl.create_default_context),
                local_hostname=domain,  # else it would ask the network for one
                timeout=SMTP_SECONDS,
            )
        except (aiosmtplib.SMTPException, OSError) as error:  # what they say may quote the mail
            logger.warning("a mail could not be sent through %s: %s", self._host, type(error).__name__)
            return False
        return True
