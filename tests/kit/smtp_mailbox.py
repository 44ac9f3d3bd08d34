"""A mail server on this machine that stores the mails it gets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass
class Mailbox:
    """The received mails, oldest first; with ``refuse`` the server refuses every mail."""

    url: str = ""
    mails: list[EmailMessage] = field(default_factory=list[EmailMessage])
    logins: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    refuse: bool = False

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.refuse:
            return "554 not today"
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        assert envelope.rcpt_tos == [mail["To"]]
        self.mails.append(mail)
        return "250 OK"

    def login(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=True)

    @property
    def codes(self) -> list[str]:
        """The codes in the mails."""
        found = [re.search(r"Your code is (\d{6})\b", mail.get_content()) for mail in self.mails]
        return [match[1] for match in found if match]


@asynccontextmanager
async def mailbox() -> AsyncGenerator[Mailbox]:
    """Run a mail server within this context."""
    box = Mailbox()

    def connected() -> SMTP:
        return SMTP(box, hostname="mail.test", authenticator=box.login, auth_require_tls=False)

    server = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        box.url = f"smtp://desk%40a.example:pass%2Fword@127.0.0.1:{port}"
        yield box
