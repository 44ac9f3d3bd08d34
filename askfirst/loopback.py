"""The loopback names of this machine: unencrypted HTTP or SMTP to them crosses no network."""

from __future__ import annotations

from urllib.parse import urlsplit

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


def only_here(url: str) -> bool:
    """Whether a URL leads to a loopback address or ``0.0.0.0``: then no other device, such as a phone, opens it."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    unbound = host == "0.0.0.0"  # noqa: S104  (a server listens on it, but no client reaches it)
    return unbound or host in LOOPBACK_HOSTS or host.endswith(".localhost") or host.startswith("127.")
