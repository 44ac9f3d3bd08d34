"""The names of this machine: to these, plain ``http`` or SMTP in the clear crosses no network."""

from __future__ import annotations

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
