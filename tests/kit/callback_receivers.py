"""Receivers of callbacks: a local server, with TLS for any name, that records the requests it gets."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Receiver:
    """The requests that came in, and the answer to each; with ``answer=None`` the connection is never answered."""

    port: int = 0
    answer: bytes | None = OK
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    """The names that clients asked for when TLS began."""
    connections: int = 0

    @property
    def last(self) -> tuple[str, dict[str, str], bytes]:
        """Request line, headers by lower-case name, and body of the last request."""
        return self.requests[-1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.requests.append((head[0], headers, body))
            if self.answer is None:
                await reader.read()
                return
            writer.write(self.answer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None, answer: bytes | None = OK) -> AsyncIterator[Receiver]:
    """A receiver on loopback."""
    receiver = Receiver(answer=answer)
    if tls is not None:
        tls.sni_callback = lambda _socket, name, _context: receiver.names.append(name)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver


def certified(name: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS for a server of this name, and for clients that trust it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"{name}.pem"
    path.write_bytes(secret + pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cadata=pem.decode())
