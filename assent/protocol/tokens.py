"""The two bearer tokens of a case: issued once, kept as hashes, compared in constant time."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Literal

TokenScope = Literal["review", "submit"]

_PREFIXES: Mapping[TokenScope, str] = {"review": "", "submit": "agt_"}
"""The protocol fixes a review token at 43 characters, so only the other can be marked."""
_RANDOM = re.compile(r"[A-Za-z0-9_-]{43}")
_NOBODY = hashlib.sha256(b"").hexdigest()


def issue_token(scope: TokenScope) -> str:
    """A new token with 256 random bits, safe in an address."""
    return token_prefix(scope) + secrets.token_urlsafe(32)


def token_prefix(scope: TokenScope) -> str:
    """What a token of this scope begins with, before its 43 characters."""
    return _PREFIXES[scope]


def hash_token(token: str) -> str:
    """What to store of a token: its SHA-256 in hexadecimal."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def token_matches(token: str, scope: TokenScope, stored_hash: str | None) -> bool:
    """Whether a token is the one of this scope whose hash is stored.

    A token of the other scope never is, even with its own hash. Without a stored hash, as for an unknown
    case, the answer is no and takes as long.
    """
    same = hmac.compare_digest(hash_token(token).encode(), (stored_hash or _NOBODY).encode())
    return same and stored_hash is not None and _has_scope(token, scope)


def _has_scope(token: str, scope: TokenScope) -> bool:
    prefix = _PREFIXES[scope]
    return token.startswith(prefix) and _RANDOM.fullmatch(token, len(prefix)) is not None
