"""The test ``host_in``: the host of a URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any, cast

from assent.permissions.names import is_glob, name_matcher

# What could be read in two ways is no URL here: user names, backslashes, spaces, percent signs in hosts,
# letters beyond ASCII. Programs disagree on where such a URL leads. Without re.ASCII a long s would be an "s" here,
# and the Kelvin sign a "k".
_URL = re.compile(r"(?:https?|wss?)://([^/?#]+)(?:[/?#].*)?", re.IGNORECASE | re.ASCII)
_ODD = re.compile(r"[\x00-\x20\x7f\\]")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$")
_PATTERN = re.compile(r"[a-z0-9_.*?\[\]!-]+")


def host_in(operand: Any) -> Callable[[Any], bool | None]:
    """The URL's host is one of these, each a name, an address or a glob such as ``*.example.com``.

    Ports are not looked at. It cannot tell for what is no plain http, https, ws or wss URL.
    """
    given: Any = [operand] if isinstance(operand, str) else operand
    if not isinstance(given, list | tuple) or not given:
        raise ValueError("needs a host or a list of hosts")
    matchers = [name_matcher(_pattern(each)) for each in cast("Sequence[Any]", given)]

    def test(value: Any) -> bool | None:
        host = host_of(value) if isinstance(value, str) else None
        return None if host is None else any(matches(host) for matches in matchers)

    return test


def host_of(url: str) -> str | None:
    """The host of a URL in lower case and without a dot at its end, or None for a URL that is not plain."""
    found = None if _ODD.search(url) else _URL.fullmatch(url)
    authority = _AUTHORITY.fullmatch(found[1]) if found else None
    return _normal(authority[1]) if authority else None


def _normal(host: str) -> str | None:
    host = host.lower()
    if host.startswith("["):
        return _ipv6(host[1:-1])
    host = host.removesuffix(".")
    if not _NAME.fullmatch(host):
        return None
    if _ENDS_IN_NUMBER.search(host):  # some programs read 2130706433 or 0x7f.1 as an address
        try:
            return str(IPv4Address(host))
        except AddressValueError:
            return None
    return host


def _ipv6(host: str) -> str | None:
    try:
        address = IPv6Address(host)
    except AddressValueError:
        return None
    return None if address.ipv4_mapped else str(address)


def _pattern(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError("needs hosts that are text")
    pattern = given.lower()
    if ":" in pattern:
        address = _ipv6(pattern.removeprefix("[").removesuffix("]"))
        if address is None:
            raise ValueError(f"has the host {given!r}; write it without scheme and port")
        return address
    if not pattern.isascii():
        raise ValueError(f"has the host {given!r}; write it in ASCII, as xn--…")
    if not _PATTERN.fullmatch(pattern):
        raise ValueError(f"has the host {given!r}, which is none")
    if is_glob(pattern):
        return pattern
    host = _normal(pattern)
    if host is None:
        raise ValueError(f"has the host {given!r}, which is none")
    return host
