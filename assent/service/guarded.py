"""Requests to addresses that others have named: none that leads back into the network the service runs in."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple, Self

import httpx2

from assent.errors import InvalidCallbackUrl
from assent.service.addresses import Target, is_loopback, is_public

CONNECT_SECONDS = 5.0
ADDRESSES_TRIED = 3
LOOK_UPS = 8
"""How many names are looked up at a time."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and a port to its IP addresses; raises ``OSError`` if there are none."""


class Reply(NamedTuple):
    """What was answered; no more of its ``body`` than was asked for, and None if there is more."""

    status: int
    content_type: str
    body: bytes | None


class Guard:
    """Makes requests, each to an address that was checked and on a connection of its own.

    Use it in ``async with``. With ``development``, ``http`` to this machine's loopback is fine too. ``tls``
    says whose certificates are trusted, by default those of the well-known authorities; ``resolve`` looks
    names up.
    """

    def __init__(
        self,
        *,
        development: bool = False,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self.development = development
        self._tls = tls
        self._resolve = resolve or self._look_up
        # Of their own, so that names which are slow to resolve keep nobody else waiting.
        self._threads = ThreadPoolExecutor(LOOK_UPS, "assent-names")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def exchange(
        self,
        method: str,
        where: Target,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        seconds: float,
        at_most: int = 0,
    ) -> Reply:
        """One request, and up to ``at_most`` bytes of what is answered; redirects are answers like any other.

        Raises `InvalidCallbackUrl` for a name that leads inside, ``OSError`` for one that nobody knows,
        ``httpx2.ConnectError`` or ``ConnectTimeout`` if nobody takes the connection, another
        ``httpx2.TransportError`` if it breaks, and ``TimeoutError`` after so many seconds for all of it.
        """
        async with asyncio.timeout(seconds):
            addresses = await self._addresses(where)
            if self._tls is None:  # reading all the authorities' certificates takes a while
                self._tls = await asyncio.to_thread(httpx2.create_ssl_context, trust_env=False)
            refused: httpx2.TransportError = httpx2.ConnectError("no address")
            for address in addresses[:ADDRESSES_TRIED]:
                request = _request(method, where, address, headers, body, seconds)
                try:
                    return await _exchanged(request, self._tls, at_most)
                except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                    refused = error
            raise refused

    async def _addresses(self, where: Target) -> list[str]:
        """Where the host is, each place checked; these very addresses are then connected to."""
        found = [ip_address(address) for address in await self._resolve(where.host, where.port)]
        for address in found:
            if not self._may_go_to(where, address):
                raise InvalidCallbackUrl(f"{where.host} leads to {address}, which is no public address")
        if not found:
            raise OSError("no address")
        return [str(address) for address in dict.fromkeys(found)]

    async def _look_up(self, host: str, port: int) -> list[str]:
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [str(address[0]) for *_, address in found]

    def _may_go_to(self, where: Target, address: IPv4Address | IPv6Address) -> bool:
        if self.development and is_loopback(address):
            return where.host in ("localhost", str(address))
        return where.scheme == "https" and is_public(address)


def _request(
    method: str, where: Target, address: str, headers: Mapping[str, str], body: bytes, seconds: float
) -> httpx2.Request:
    literal = f"[{address}]" if ":" in address else address
    return httpx2.Request(
        method,
        f"{where.scheme}://{literal}:{where.port}/",
        headers={**headers, "host": where.authority, "connection": "close"},
        content=body or None,
        extensions={
            "sni_hostname": where.host,  # and the name that the certificate must be for
            "target": where.target.encode(),
            "timeout": httpx2.Timeout(seconds, connect=CONNECT_SECONDS).as_dict(),
        },
    )


async def _exchanged(request: httpx2.Request, tls: ssl.SSLContext, at_most: int) -> Reply:
    """By the transport alone: nothing follows redirects, looks for proxies in the environment, keeps cookies
    or logs the address."""
    async with httpx2.AsyncHTTPTransport(verify=tls, trust_env=False) as transport:
        response = await transport.handle_async_request(request)
        try:
            body = await _beginning(response, at_most) if at_most else b""
        finally:
            await response.aclose()
    return Reply(response.status_code, response.headers.get("content-type", ""), body)


async def _beginning(response: httpx2.Response, at_most: int) -> bytes | None:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > at_most:
            return None
    return bytes(body)
