"""A mail server on this machine that stores the mails it gets, and refuses configured addresses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass
class PostOffice:
    """The received mails, oldest first, with their recipients; ``refused`` has addresses with the server's reply."""

    host: str
    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list[EmailMessage])
    recipients: list[list[str]] = field(default_factory=list[list[str]])
    logins: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    encrypted: list[bool] = field(default_factory=list[bool])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    refuse_all: str | None = None

    def url(self, login: str = "desk%40a.example:pass%2Fword") -> str:
        return f"smtp://{login}@{self.host}:{self.port}"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.refuse_all is not None:
            return self.refuse_all
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        self.recipients.append([address for address in envelope.rcpt_tos if address])
        self.encrypted.append(server.transport.get_extra_info("sslcontext") is not None)
        return "250 OK"

    def login(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"pass/word", handled=False)


@asynccontextmanager
async def post_office(
    tls: ssl.SSLContext | None = None, *, host: str = "127.0.0.1", implicit: bool = False
) -> AsyncGenerator[PostOffice]:
    """Run a mail server within this context; with ``tls`` it accepts mail over an encrypted connection only."""
    office = PostOffice(host)

    def connected() -> SMTP:
        return SMTP(
            office,
            hostname="mail.test",
            authenticator=office.login,
            auth_require_tls=tls is not None and not implicit,
            tls_context=None if implicit else tls,
            require_starttls=tls is not None and not implicit,
        )

    loop = asyncio.get_running_loop()
    server = await loop.create_server(connected, "127.0.0.1", 0, ssl=tls if implicit else None)
    async with server:
        office.port = server.sockets[0].getsockname()[1]
        yield office
