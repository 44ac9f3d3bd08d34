"""The loopback names of this machine: unencrypted HTTP or SMTP to them crosses no network."""

from __future__ import annotations

from urllib.parse import urlsplit

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


def is_local_url(url: str) -> bool:
    """Whether only this machine can open a URL: its host is a loopback name or ``0.0.0.0``, which no phone
    reaches."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    unbound = host == "0.0.0.0"  # noqa: S104  (a server listens on it, but no client reaches it)
    return unbound or host in LOOPBACK_HOSTS or host.endswith(".localhost") or host.startswith("127.")
