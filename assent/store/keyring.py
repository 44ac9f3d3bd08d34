"""Encryption of values: each with a data key, by AES-256-GCM, bound to the column it stands in."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from assent.errors import StoreError
from assent.master_keys import KEY_BYTES, MasterKeys

PREFIX = "aes1:"
"""What an encrypted value begins with. A plain one is JSON, which never does."""
_NONCE_BYTES = 12


class Keyring:
    """The data keys of a database, opened; ``current`` is the id of the one that new values are written with."""

    def __init__(self, data_keys: Mapping[str, bytes], current: str) -> None:
        self._ciphers = {key_id: AESGCM(key) for key_id, key in data_keys.items()}
        self.current = current

    def seal(self, place: str, value: str) -> str:
        """A value encrypted, for a place (``"requests.payload"``) and no other."""
        return f"{PREFIX}{self.current}:{_encrypted(self._ciphers[self.current], value.encode(), place)}"

    def open(self, place: str, value: str) -> str:
        """The value that was sealed for this place; one that is not encrypted comes back as it is.

        Raises `StoreError` for one that cannot be opened.
        """
        if not value.startswith(PREFIX):
            return value
        key_id, _, data = value[len(PREFIX) :].partition(":")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise StoreError(
                f"a value in {place} was encrypted with a key that came after this process had opened the "
                "database: close it, and open it anew"
            )
        try:
            return _decrypted(cipher, data, place).decode()
        except (InvalidTag, ValueError):
            raise StoreError(f"a value in {place} was altered: it cannot be decrypted") from None

    def is_current(self, value: str) -> bool:
        """Whether a stored value is encrypted with the key in use."""
        return value.startswith(f"{PREFIX}{self.current}:")

    def __repr__(self) -> str:
        return f"Keyring({len(self._ciphers)} keys)"


def new_data_key() -> tuple[str, bytes]:
    """A fresh data key with its id."""
    return secrets.token_hex(8), secrets.token_bytes(KEY_BYTES)


def wrap(masters: MasterKeys, key_id: str, data_key: bytes) -> str:
    """A data key, encrypted with the master key in use and bound to its id."""
    return _encrypted(AESGCM(masters.key), data_key, key_id)


def unwrap(masters: MasterKeys, key_id: str, wrapped: str, master: str) -> bytes:
    """The data key that was wrapped with the master key of this fingerprint. Raises `StoreError`."""
    key = masters.find(master)
    if key is None:
        raise StoreError(
            f"this database is encrypted with another key, of fingerprint {master}: give that one as well, after "
            "a comma or on a line of its own"
        )
    try:
        return _decrypted(AESGCM(key), wrapped, key_id)
    except (InvalidTag, ValueError):
        raise StoreError(
            f"the data key {key_id} of this database was altered: it cannot be decrypted"
        ) from None


def _encrypted(cipher: AESGCM, data: bytes, place: str) -> str:
    nonce = secrets.token_bytes(_NONCE_BYTES)  # random: a key is good for four thousand million values
    return base64.b64encode(nonce + cipher.encrypt(nonce, data, place.encode())).decode()


def _decrypted(cipher: AESGCM, text: str, place: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], place.encode())
