"""The state of a call that an MCP client holds for the gate between two requests, encrypted and authenticated."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

OURS = "askfirst."
"""The prefix of the gate's tokens; any other token belongs to the server."""


@dataclass(frozen=True, slots=True)
class CallState:
    """The state of a call: its ordinal among equal calls, and the input that the server behind the gate waits for."""

    base: str
    ordinal: int
    nonce: str
    """Identifies one call of a client. It is stored with the result, so that another equal call does not get it."""
    rounds: int = 0
    """How often the client was told to try again."""
    upstream: str | None = None
    """The state that the server behind the gate sent with its request for input, if it sent one."""
    is_for_upstream: bool = False
    """Whether the client's next input is for the server behind the gate."""


class StateCipher:
    """Encrypts states as tokens. Without a ``secret``, tokens are valid until the process ends."""

    def __init__(self, secret: str | None) -> None:
        key = secrets.token_bytes(32) if secret is None else _derived(secret)
        self._fernet = Fernet(base64.urlsafe_b64encode(key))

    def encrypt(self, state: CallState) -> str:
        """The token of a state."""
        whole = [state.base, state.ordinal, state.nonce, state.rounds, state.upstream, state.is_for_upstream]
        return OURS + self._fernet.encrypt(json.dumps(whole).encode()).decode()

    def decrypt(self, token: Any) -> CallState | None:
        """The state in a token of the gate; None for other tokens, forged ones, and tokens of another secret."""
        if not isinstance(token, str) or not token.startswith(OURS):
            return None
        try:
            return CallState(*json.loads(self._fernet.decrypt(token.removeprefix(OURS))))
        except InvalidToken:
            return None


def _derived(secret: str) -> bytes:
    return hmac.new(secret.encode(), b"askfirst mcp gate", hashlib.sha256).digest()
