"""The mails that the service sends itself."""

from __future__ import annotations

import logging
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from assent.errors import ServiceError
from assent.smtp import NotSent, SmtpServer

logger = logging.getLogger("assent.service")
SMTP_VARIABLE = "ASSENT_SMTP_URL"


class Mailer(SmtpServer):
    """Sends mail through the server of an address like ``smtp://user:password@host:587?from=me@a.example``.

    `SmtpServer` says when that is encrypted.
    """

    extra = "service"

    def __init__(self, url: str, *, in_clear: bool = False) -> None:
        try:
            super().__init__(url, in_clear=in_clear)
        except ValueError as error:
            raise ServiceError(f"smtp_url {error}") from None

    async def send(self, to: str, subject: str, text: str, *, domain: str) -> bool:
        """Send a mail; False, with a line in the log, if it could not be. ``domain`` is who we are."""
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = self.sender, to, subject
        mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain=domain)
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(text)
        try:
            await self.hand_over(mail, domain=domain)
        except NotSent as error:
            logger.warning("a mail could not be sent through %s: %s", self.host, error)
            return False
        return True
