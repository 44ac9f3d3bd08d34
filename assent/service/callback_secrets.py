"""The secret that signs callbacks: one for each API key, all derived from the server's own."""

from __future__ import annotations

import base64
import hashlib
import hmac

from assent.errors import InvalidSecret

SECRET_VARIABLE = "ASSENT_SECRET"  # noqa: S105  (its name)
SECRET_LENGTH = 32


def callback_secret(server_secret: str, key_id: str) -> str:
    """The secret for the callbacks of cases that were opened with an API key: ``whsec_`` and base64.

    The same server secret and key id always give the same. Raises `InvalidSecret` for a server secret of
    fewer than 32 characters.
    """
    if len(server_secret) < SECRET_LENGTH:
        raise InvalidSecret(
            f"the server's secret needs at least {SECRET_LENGTH} characters; "
            f"set {SECRET_VARIABLE} to the output of: openssl rand -base64 32"
        )
    derived = hmac.new(server_secret.encode(), b"assent callback\0" + key_id.encode(), hashlib.sha256)
    return "whsec_" + base64.b64encode(derived.digest()).decode()
