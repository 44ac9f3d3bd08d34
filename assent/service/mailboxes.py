"""An e-mail address as it may be shown to whoever has the link."""

from __future__ import annotations


def masked_address(address: str) -> str:
    """An address that only those recognise who know it: ``a***@example.com``."""
    name, _, domain = address.rpartition("@")
    return f"{name[:1]}***@{domain}"
