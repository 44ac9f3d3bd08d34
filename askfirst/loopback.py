"""The names of this machine: to these, plain ``http`` or SMTP in the clear crosses no network."""

from __future__ import annotations

from urllib.parse import urlsplit

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


def only_here(url: str) -> bool:
    """Whether an address leads to this machine from this machine alone, so that no phone can open it."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    unbound = host == "0.0.0.0"  # noqa: S104  (what a server listens on, and nobody reaches)
    return unbound or host in LOOPBACK_HOSTS or host.endswith(".localhost") or host.startswith("127.")
