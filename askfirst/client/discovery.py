"""Discovery: what a service says about itself."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit, urlunsplit

import httpx2

from askfirst.errors import DiscoveryFailed, InvalidProtocolObject
from askfirst.loopback import LOOPBACK_HOSTS
from askfirst.protocol import Discovery, read_discovery

PATH = "/.well-known/hitl.json"
MOST_BYTES = 1_000_000
SECONDS = 30.0
_HOPS = 5


async def discover(http: httpx2.AsyncClient, base_url: str) -> Discovery:
    """The document at ``/.well-known/hitl.json`` of the host of ``base_url``, checked.

    Redirects are followed on that host only. Raises `DiscoveryFailed`, which says what is wrong: no such
    document, no JSON, another version of the protocol, another host, no answer.
    """
    where = urlsplit(base_url)
    if where.scheme != "https" and (where.scheme != "http" or where.hostname not in LOOPBACK_HOSTS):
        raise DiscoveryFailed(
            _host(base_url), "its address begins with https://, or with http:// on this machine"
        )
    url = urlunsplit((where.scheme, where.netloc, PATH, "", ""))
    try:
        async with asyncio.timeout(SECONDS):
            body = await _get(http, url)
    except (httpx2.HTTPError, TimeoutError) as error:
        raise DiscoveryFailed(_host(url), f"it could not be reached ({type(error).__name__})") from None
    try:
        return read_discovery(body)
    except InvalidProtocolObject as error:
        raise DiscoveryFailed(_host(url), f"{PATH} cannot be used: {error}") from None


async def _get(http: httpx2.AsyncClient, url: str) -> bytes:
    """Fetch the document, following redirects on its own host."""
    for _ in range(_HOPS):
        async with http.stream(
            "GET", url, headers={"Accept": "application/json"}, follow_redirects=False
        ) as response:
            if response.is_redirect:
                target = str(response.url.join(response.headers["location"]))
                if _origin(target) != _origin(url):
                    raise DiscoveryFailed(_host(url), f"{PATH} leads to another host, {_host(target)}")
                url = target
                continue
            if response.status_code == 404:
                raise DiscoveryFailed(_host(url), f"there is no {PATH}, so it does not say what it supports")
            if not response.is_success:
                raise DiscoveryFailed(_host(url), f"{PATH} was answered with HTTP {response.status_code}")
            return await _read(response, url)
    raise DiscoveryFailed(_host(url), f"{PATH} is redirected again and again")


async def _read(response: httpx2.Response, url: str) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MOST_BYTES:
            raise DiscoveryFailed(_host(url), f"{PATH} has more than {MOST_BYTES} bytes")
    return bytes(body)


def _origin(url: str) -> tuple[str, str]:
    where = urlsplit(url)
    return where.scheme, where.netloc.rpartition("@")[2].lower()


def _host(url: str) -> str:
    """The part of a URL that may be shown: no login, no path, no query."""
    return urlsplit(url).netloc.rpartition("@")[2] or "the address"
