"""Which addresses are good: for the service itself, and for callbacks, which may not lead back into its network."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

from assent.errors import InvalidCallbackUrl, ServiceError
from assent.limits import CALLBACK_URL_CHARACTERS

URL_LENGTH = CALLBACK_URL_CHARACTERS
_REACHED = re.compile(r"(https://[^/?#\s]+|http://(localhost|127\.0\.0\.1)(:[0-9]+)?)(/[^?#\s]*)?")
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
            "100.64.0.0/10",  # shared with a carrier; some clouds' metadata
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # public in name, but the host of every Azure machine
            "169.254.0.0/16",  # link-local; most clouds' metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # IETF; one cloud's metadata
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
    """Raise `ServiceError` for what cannot be the address of the service."""
    if not _REACHED.fullmatch(base_url):
        raise ServiceError(
            "base_url is where people reach the service, as in https://a.example (http only on localhost or "
            f"127.0.0.1, as the protocol has it; without ? and #), not {base_url!r}"
        )


class Target(NamedTuple):
    """Where a callback goes, taken apart by one parser, so that nobody reads the URL another way."""

    scheme: str
    host: str
    """A name or an IP address, in lower case and without brackets."""
    port: int
    target: str
    """Path and query."""

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.scheme == "https" else 80)
        return host if usual else f"{host}:{self.port}"


def check_callback_url(url: str, *, development: bool = False) -> Target:
    """Take a callback's URL apart; raises `InvalidCallbackUrl` if it could never be called.

    It is ASCII, ``https`` and without login or fragment; an IP address in it is a public one. What its name
    resolves to is checked when it is called. With ``development``, ``http`` to this machine's loopback is
    fine too.
    """
    found = _URL.fullmatch(url) if len(url) <= URL_LENGTH else None
    if found is None:
        raise InvalidCallbackUrl(
            f"it is no URL of up to {URL_LENGTH} ASCII characters with a host, "
            "and without login, fragment or characters that need escaping"
        )
    scheme, host = found["scheme"].lower(), found["host"].lower().strip("[]")
    port = int(found["port"] or (443 if scheme == "https" else 80))
    target = found["target"] or "/"
    where = Target(scheme, host, port, target if target.startswith("/") else f"/{target}")
    if not 0 < port < 65536:
        raise InvalidCallbackUrl(f"there is no port {port}")
    address = _literal(found["host"].lower())
    if development and (host == "localhost" or (address is not None and is_loopback(address))):
        return where
    if scheme != "https":
        raise InvalidCallbackUrl("it must begin with https://")
    if host == "localhost" or host.endswith(".localhost"):
        raise InvalidCallbackUrl(f"{host} is the service's own machine")
    if address is not None and not is_public(address):
        raise InvalidCallbackUrl(f"{host} is no public address")
    return where


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is somewhere on the public internet, and in no other way special."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC)
    if address.scope_id is not None:
        return False
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    return address in _UNICAST and not any(address in network for network in _NOT_PUBLIC_6)


def is_loopback(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is this machine itself, by the usual names for it."""
    return address.is_loopback


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to an IPv6 one end up at."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """The IP address that a host is, or None for a name; raises for what is neither."""
    if host.startswith("[") or _NUMBER.fullmatch(host.rpartition(".")[2]):
        # A resolver reads 0x7f.1 and 2130706433 as 127.0.0.1, and 010 as 8.
        try:
            return ip_address(host.strip("[]"))
        except ValueError:
            raise InvalidCallbackUrl("its host is neither a name nor an IP address in full") from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise InvalidCallbackUrl("its host is no valid name")
    return None
