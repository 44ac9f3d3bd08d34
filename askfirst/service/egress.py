"""Egress: HTTP requests to URLs that callers named, through a guard against SSRF; prefills of form fields."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, NamedTuple, Self, cast

import httpx2
from pydantic_core import from_json

from askfirst.errors import InvalidCallbackUrl, ServiceError
from askfirst.limits import CALLBACK_URL_CHARACTERS
from askfirst.protocol import FormField
from askfirst.protocol.form_answers import fault_of, is_empty
from askfirst.service.budgets import Spending
from askfirst.service.case import Case
from askfirst.service.pages import read_field

# Checks of URLs: the service's own, and those of callbacks, which must not lead into the service's network.


URL_LENGTH = CALLBACK_URL_CHARACTERS
_BASE_URL = re.compile(r"(https://[^/?#\s]+|http://(localhost|127\.0\.0\.1)(:[0-9]+)?)(/[^?#\s]*)?")
_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>[/?][!$-;=?-Z\[\]_a-z~]*)?",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

_NOT_PUBLIC = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT; some clouds' metadata service
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # a public range, but inside Azure the host of every machine
            "169.254.0.0/16",  # link-local; most clouds' metadata service
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # IETF; one cloud's metadata service
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_UNICAST = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # IETF: Teredo and others
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: it may lead to any IPv4 address
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


def check_base_url(base_url: str) -> None:
    """Raise `ServiceError` for a text that cannot be the base URL of the service."""
    if not _BASE_URL.fullmatch(base_url):
        raise ServiceError(
            "base_url must be the address at which people reach the service, as in https://a.example (http only on "
            f"localhost or 127.0.0.1, as the protocol requires; without ? and #), not {base_url!r}"
        )


class Target(NamedTuple):
    """The parsed URL of a callback. It is parsed only once, because a second parser could read it differently."""

    scheme: str
    host: str
    """A name or an IP address, in lower case and without brackets."""
    port: int
    target: str
    """Path and query."""

    @property
    def authority(self) -> str:
        """Host and port in the form of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.scheme == "https" else 80)
        return host if usual else f"{host}:{self.port}"


def check_callback_url(url: str, *, development: bool = False) -> Target:
    """Parse a callback's URL; raises `InvalidCallbackUrl` if it is not allowed.

    The URL must be ASCII and ``https``, without login or fragment. An IP address in it must be public. The addresses
    that a name resolves to are checked when the request is sent. With ``development``, ``http`` to this machine's
    loopback is allowed, too.
    """
    found = _URL.fullmatch(url) if len(url) <= URL_LENGTH else None
    if found is None:
        raise InvalidCallbackUrl(
            f"it must be a URL of up to {URL_LENGTH} ASCII characters with a host, "
            "without login, fragment or characters that need escaping"
        )
    scheme, host = found["scheme"].lower(), found["host"].lower().strip("[]")
    port = int(found["port"] or (443 if scheme == "https" else 80))
    target = found["target"] or "/"
    where = Target(scheme, host, port, target if target.startswith("/") else f"/{target}")
    if not 0 < port < 65536:
        raise InvalidCallbackUrl(f"there is no port {port}")
    address = _ip_address(found["host"].lower())
    if development and (host == "localhost" or (address is not None and is_loopback(address))):
        return where
    if scheme != "https":
        raise InvalidCallbackUrl("it must begin with https://")
    if host == "localhost" or host.endswith(".localhost"):
        raise InvalidCallbackUrl(f"{host} is the service's own machine")
    if address is not None and not is_public(address):
        raise InvalidCallbackUrl(f"{host} is not a public address")
    return where


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an IP address is on the public internet, not reserved for a special use."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC)
    if address.scope_id is not None:
        return False
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    return address in _UNICAST and not any(address in network for network in _NOT_PUBLIC_6)


def is_loopback(address: IPv4Address | IPv6Address) -> bool:
    """Whether an IP address is a loopback address."""
    return address.is_loopback


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address maps to (NAT64, IPv4-mapped)."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def _ip_address(host: str) -> IPv4Address | IPv6Address | None:
    """The host as an IP address; None if it is a name. Raises `InvalidCallbackUrl` if it is neither."""
    if host.startswith("[") or _NUMBER.fullmatch(host.rpartition(".")[2]):
        # Only complete addresses are accepted: a resolver reads 0x7f.1 and 2130706433 as 127.0.0.1, and 010 as 8.
        try:
            return ip_address(host.strip("[]"))
        except ValueError:
            raise InvalidCallbackUrl(
                "its host is neither a name nor an IP address in its usual form"
            ) from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise InvalidCallbackUrl("its host is not a valid name")
    return None


# The SSRF guard (server-side request forgery): no request goes into the service's own network.


CONNECT_SECONDS = 5.0
ADDRESSES_TRIED = 3
LOOK_UPS = 8
"""How many DNS look-ups may run at the same time."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""A DNS look-up of a host and a port: returns the IP addresses, or raises ``OSError`` if there are none."""


class Reply(NamedTuple):
    """A response; ``body`` is None if it is longer than the limit."""

    status: int
    content_type: str
    body: bytes | None


class Guard:
    """Sends HTTP requests to checked IP addresses only, each on a new connection.

    Use it in ``async with``. With ``development``, ``http`` to this machine's loopback is allowed, too. ``tls``
    has the trusted certificate authorities, by default the well-known ones. ``resolve`` does DNS look-ups.
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
        # A thread pool of its own, so that slow DNS look-ups delay nothing else.
        self._threads = ThreadPoolExecutor(LOOK_UPS, "askfirst-names")

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
        """Send one request, and read up to ``at_most`` bytes of the response. Redirects are not followed.

        Raises `InvalidCallbackUrl` for a name that resolves to an address that is not public, ``OSError`` for a name
        that does not resolve, ``httpx2.ConnectError`` or ``ConnectTimeout`` if the host cannot be reached, another
        ``httpx2.TransportError`` if the connection breaks, and ``TimeoutError`` after ``seconds`` in total.
        """
        async with asyncio.timeout(seconds):
            addresses = await self._addresses(where)
            if self._tls is None:  # loading the trusted certificates takes a while
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
        """The host's IP addresses, all checked. The request connects to these, so a second look-up cannot differ."""
        found = [ip_address(address) for address in await self._resolve(where.host, where.port)]
        for address in found:
            if not self._may_go_to(where, address):
                raise InvalidCallbackUrl(f"{where.host} resolves to {address}, which is not a public address")
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
            "sni_hostname": where.host,  # the certificate must be for this name, too
            "target": where.target.encode(),
            "timeout": httpx2.Timeout(seconds, connect=CONNECT_SECONDS).as_dict(),
        },
    )


async def _exchanged(request: httpx2.Request, tls: ssl.SSLContext, at_most: int) -> Reply:
    """Send with the bare transport: without redirects, proxies from the environment, cookies, or logs of the URL."""
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


logger = logging.getLogger("askfirst.service")
SECONDS = 5.0
"""The time-out of fetching a value. The page waits for it."""
MOST_BYTES = 20_000
MOST_AT_ONCE = 20
"""How many values are fetched for one page. Further fields stay empty."""


class Prefills:
    """Fetches the ``default_ref`` URLs of form fields, with the review token. The values are not stored.

    The caller who opened the case named the URL and has the token already. Redirects are not followed, so that nobody
    else gets the token.
    """

    def __init__(self, guard: Guard, spending: Spending | None = None) -> None:
        self._guard = guard
        self._spending = spending

    async def fetch(self, case: Case, token: str, fields: Sequence[FormField]) -> dict[str, Any]:
        """The values by field key; None for a value that could not be fetched."""
        asked = [field for field in fields if field.default_ref is not None]
        now = asked[:MOST_AT_ONCE]
        if now and self._spending is not None and not await self._spending.prefills(case, len(now)):
            now = []
        found = await asyncio.gather(*(self._value(case, token, each) for each in now))
        return {field.key: None for field in asked} | dict(found)

    async def _value(self, case: Case, token: str, field: FormField) -> tuple[str, Any]:
        headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/plain",
            "accept-encoding": "identity",
            "user-agent": "askfirst",
        }
        try:
            where = check_callback_url(str(field.default_ref), development=self._guard.development)
            reply = await self._guard.exchange("GET", where, headers, seconds=SECONDS, at_most=MOST_BYTES)
            return field.key, _field_value(field, reply)
        except InvalidCallbackUrl as error:
            why = error.problem
        except ValueError as error:
            why = str(error)
        except (httpx2.TransportError, TimeoutError, OSError) as error:
            why = type(error).__name__
        logger.warning("the value of %s of case %s could not be fetched: %s", field.key, case.case_id, why)
        return field.key, None


def _field_value(field: FormField, reply: Reply) -> Any:
    """The value of a field from a response: a JSON value, a JSON object with the value as ``value``, or plain text.

    Raises ``ValueError`` for any other response; the error does not quote the value.
    """
    if reply.status != 200 or reply.body is None:
        raise ValueError(f"answered with {reply.status}" if reply.status != 200 else "too long")
    value: Any
    try:
        value = reply.body.decode()
        if reply.content_type.partition(";")[0].strip().lower() == "application/json":
            value = from_json(reply.body, allow_inf_nan=False)
    except ValueError:
        raise ValueError("neither JSON nor text") from None
    if isinstance(value, Mapping):
        value = cast("Mapping[str, Any]", value).get("value")
    if isinstance(value, str):
        value = read_field(field, [value])
    if is_empty(value) or fault_of(field, value) is not None:
        raise ValueError("not a value for this field")
    return value
