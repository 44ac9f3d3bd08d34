"""The mails that the service sends itself."""

from __future__ import annotations

import logging
from email.utils import make_msgid

from assent.errors import ServiceError
from assent.mail import Mail, NotComposed, compose
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

    def written(self, to: str, subject: str, text: str, *, domain: str) -> Mail | None:
        """The mail, ready to be sent; None, with a line in the log, if it cannot be. ``domain`` is who we are."""
        try:
            message_id = make_msgid(domain=domain.encode("idna").decode())
            return compose(self.sender, [to], subject, text, message_id=message_id)
        except (NotComposed, UnicodeError) as error:
            logger.warning("a mail could not be written: %s", type(error).__name__)
            return None

    async def send(self, mail: Mail, *, domain: str) -> bool:
        """Send a mail; False, with a line in the log, if it could not be. ``domain`` is who we are."""
        try:
            await self.hand_over(mail, domain=domain)
        except NotSent as error:
            logger.warning("a mail could not be sent through %s: %s", self.host, error)
            return False
        return True
