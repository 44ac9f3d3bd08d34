"""Callbacks on their way out: signed, to checked addresses only, and tried again a few times."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal, NamedTuple, Self

import httpx2

from assent.clock import Clock, SystemClock
from assent.errors import InvalidCallbackUrl
from assent.protocol import SIGNATURE_HEADER, sign_callback, webhook_headers
from assent.service.addresses import Target, check_callback_url, is_loopback, is_public

ATTEMPTS = 3
BACKOFF_SECONDS = 10
BACKOFF_FACTOR = 6
CONNECT_SECONDS = 5.0
SECONDS = 15.0
"""For all of an attempt, the look-up of the name included."""
ADDRESSES_TRIED = 3
LOOK_UPS = 8
"""How many names are looked up at a time."""
_WORTH_ANOTHER_TRY = {408, 425, 429}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and a port to its IP addresses; raises ``OSError`` if there are none."""


class Outcome(NamedTuple):
    """How an attempt went: ``sent``, worth another try (``retry``), or ``refused`` for good."""

    kind: Literal["sent", "retry", "refused"]
    detail: str
    """A few words for the log; nothing of the URL but its host, nothing of what was answered."""


def next_attempt(attempts: int, outcome: Outcome, now: int) -> int | None:
    """When to try again (epoch ms, as ``now`` is), after so many attempts; None if this was the last."""
    if outcome.kind != "retry" or attempts >= ATTEMPTS:
        return None
    return now + 1000 * BACKOFF_SECONDS * BACKOFF_FACTOR ** max(attempts - 1, 0)


class CallbackSender:
    """Sends callbacks. With ``development``, ``http`` to this machine's loopback is fine too.

    Use it in ``async with``. ``tls`` says whose certificates are trusted, by default those of the well-known
    authorities; ``resolve`` looks names up; ``clock`` tells when a callback is signed.
    """

    def __init__(
        self,
        *,
        development: bool = False,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._development = development
        self._tls = tls
        self._resolve = resolve or self._look_up
        self._clock = clock or SystemClock()
        # Of their own, so that names which are slow to resolve keep nobody else waiting.
        self._threads = ThreadPoolExecutor(LOOK_UPS, "assent-names")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def send(self, url: str, body: bytes, secret: str, *, message_id: str) -> Outcome:
        """Make one attempt to POST a body of JSON, signed with a secret of ``callback_secret``.

        ``message_id`` stays the same from attempt to attempt. Never raises for what is wrong with the
        receiver or on the way to it.
        """
        headers = {
            "content-type": "application/json",
            "user-agent": "assent",
            SIGNATURE_HEADER: sign_callback(body, secret),
            **webhook_headers(body, secret, message_id=message_id, timestamp=int(self._clock.now())),
        }
        try:
            where = check_callback_url(url, development=self._development)
            async with asyncio.timeout(SECONDS):
                return await self._post(where, await self._addresses(where), headers, body)
        except InvalidCallbackUrl as error:
            return Outcome("refused", error.problem)
        except TimeoutError:
            return Outcome("retry", f"no answer within {SECONDS:g} seconds")
        except OSError as error:  # of the look-up; what befalls a connection is dealt with there
            return Outcome("retry", f"the host could not be found ({type(error).__name__})")

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
        if self._development and is_loopback(address):
            return where.host in ("localhost", str(address))
        return where.scheme == "https" and is_public(address)

    async def _post(
        self, where: Target, addresses: Sequence[str], headers: dict[str, str], body: bytes
    ) -> Outcome:
        """POST to the first address that takes the connection."""
        if self._tls is None:  # reading all the authorities' certificates takes a while
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context, trust_env=False)
        for address in addresses[:ADDRESSES_TRIED]:
            try:
                return _judged(await _status(where, address, headers, body, self._tls))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
            except httpx2.TransportError as error:
                return Outcome("retry", f"the connection broke ({type(error).__name__})")
        return Outcome("retry", f"{where.host} could not be reached")


async def _status(
    where: Target, address: str, headers: dict[str, str], body: bytes, tls: ssl.SSLContext
) -> int:
    """POST on a connection of its own, by the transport alone: nothing follows redirects, looks for proxies
    in the environment, keeps cookies or logs the address. Of what is answered only the status is read."""
    literal = f"[{address}]" if ":" in address else address
    request = httpx2.Request(
        "POST",
        f"{where.scheme}://{literal}:{where.port}/",
        headers={**headers, "host": where.authority, "connection": "close"},
        content=body,
        extensions={
            "sni_hostname": where.host,  # and the name that the certificate must be for
            "target": where.target.encode(),
            "timeout": httpx2.Timeout(SECONDS, connect=CONNECT_SECONDS).as_dict(),
        },
    )
    async with httpx2.AsyncHTTPTransport(verify=tls, trust_env=False) as transport:
        response = await transport.handle_async_request(request)
        await response.aclose()
    return response.status_code


def _judged(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome("sent", f"answered with {status}")
    again = status >= 500 or status in _WORTH_ANOTHER_TRY
    return Outcome("retry" if again else "refused", f"answered with {status}")
