"""Master keys of encryption at rest, read from the environment or a file.

A master key encrypts only data keys. So to replace a master key, only the data keys have to be encrypted again. It is
32 random bytes, written in base64 (``askfirst encryption new-key`` prints one). If several are given, the first is in
use. The others only decrypt data keys that they encrypted earlier; ``askfirst encryption rotate`` makes them
needless.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from askfirst.errors import StoreError

KEY_VARIABLE = "ASKFIRST_ENCRYPTION_KEY"
FILE_VARIABLE = "ASKFIRST_ENCRYPTION_KEY_FILE"
KEY_BYTES = 32


class MasterKeys:
    """One or more master keys, the one in use first."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise StoreError(
                f"an encryption key is {KEY_BYTES} bytes: askfirst encryption new-key prints one"
            )
        self._keys = {fingerprint(key): key for key in keys}
        self.current = fingerprint(keys[0])
        """The fingerprint of the key in use."""

    @classmethod
    def read(cls, text: str) -> MasterKeys:
        """Read keys in base64, separated by commas, blanks or lines. Raises `StoreError`, which quotes no key."""
        return cls([_decoded(word) for word in re.split(r"[\s,]+", text.strip()) if word])

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> MasterKeys | None:
        """The keys in ``ASKFIRST_ENCRYPTION_KEY``, or in the file that ``ASKFIRST_ENCRYPTION_KEY_FILE`` names; None
        if neither is set."""
        text, path = environ.get(KEY_VARIABLE), environ.get(FILE_VARIABLE)
        if text and path:
            raise StoreError(f"{KEY_VARIABLE} and {FILE_VARIABLE} are both set: set one of them")
        if path:
            try:
                text = Path(path).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not text"
                raise StoreError(f"the file that {FILE_VARIABLE} names cannot be read: {why}") from None
        return cls.read(text) if text else None

    @property
    def key(self) -> bytes:
        """The key in use."""
        return self._keys[self.current]

    @property
    def named(self) -> Mapping[str, bytes]:
        """All keys, by their fingerprints."""
        return self._keys

    def find(self, named: str) -> bytes | None:
        """The key with this fingerprint; None if it is not among these keys."""
        return self._keys.get(named)

    def __repr__(self) -> str:
        return f"MasterKeys({len(self._keys)})"


def fingerprint(key: bytes) -> str:
    """The fingerprint of a master key: it identifies the key and reveals nothing of it."""
    return hashlib.sha256(b"master key\0" + key).hexdigest()[:16]


def new_master_key() -> str:
    """A fresh master key, in base64."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _decoded(word: str) -> bytes:
    try:
        return base64.b64decode(word.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise StoreError(
            f"an encryption key is {KEY_BYTES} bytes in base64: askfirst encryption new-key prints one"
        ) from None
