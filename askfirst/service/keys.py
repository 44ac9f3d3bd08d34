"""API keys: agents and services open and poll cases with them."""

from __future__ import annotations

import re
import secrets
from functools import partial
from typing import NamedTuple

from askfirst.account import os_account
from askfirst.clock import Clock, SystemClock, milliseconds, seconds
from askfirst.concurrency import finish
from askfirst.errors import StoreError
from askfirst.protocol import hash_token
from askfirst.store import case_access
from askfirst.store.audit import Entry, claimed
from askfirst.store.case_access import KeyRow
from askfirst.store.engine import Engine
from askfirst.store.rows import decode_text, encode_text, fresh_write_id

NAME_LENGTH = 200
_KEY = re.compile(r"askfirst_[A-Za-z0-9_-]{43}")


class IssuedKey(NamedTuple):
    """A new key. ``text`` is the secret, to be shown once: only its hash is stored."""

    key_id: str
    text: str

    def __repr__(self) -> str:
        return f"IssuedKey(key_id={self.key_id!r}, text='***')"


class ApiKey(NamedTuple):
    """An API key without its secret; times are seconds since 1970 (UTC)."""

    key_id: str
    name: str
    created_at: float
    revoked_at: float | None


class Keys:
    """The API keys of one database."""

    def __init__(self, engine: Engine, *, clock: Clock | None = None) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()

    async def issue(self, name: str, *, by: str | None = None) -> IssuedKey:
        """Issue a key for an agent.

        The actor in the audit trail is the operating system's account; ``by`` is stored beside it as a claim.
        """
        if not name.strip() or len(name) > NAME_LENGTH:
            raise StoreError(f"a key's name must have 1 to {NAME_LENGTH} characters, not only spaces")
        new = IssuedKey(f"key_{secrets.token_hex(8)}", f"askfirst_{secrets.token_urlsafe(32)}")
        now = self._now()
        encoded = _encoded(name)
        row = KeyRow(new.key_id, encoded, hash_token(new.text), now, None, fresh_write_id())
        actor = os_account()
        entry = Entry("key.created", new.key_id, actor, now, {"name": name, **claimed(by, actor)})
        await finish(
            self._engine.write(
                partial(case_access.issue_key, row, [entry]), partial(case_access.key_issued, row)
            )
        )
        return new

    async def revoke(self, key_id: str, *, by: str | None = None) -> bool:
        """Revoke a key for ever; False if there is no such key, or it is revoked already. ``by`` as in `issue`."""
        now, write_id, actor = self._now(), fresh_write_id(), os_account()
        entry = Entry("key.revoked", key_id, actor, now, claimed(by, actor))
        return await finish(
            self._engine.write(
                partial(case_access.revoke_key, key_id, now, write_id, [entry]),
                partial(case_access.key_revoked, key_id, write_id),
            )
        )

    async def listing(self) -> list[ApiKey]:
        """All keys, oldest first, including revoked ones."""
        return [_api_key(row) for row in await self._engine.read(case_access.all_keys)]

    async def find(self, text: str) -> ApiKey | None:
        """The key with this secret; None if there is none, or it is revoked."""
        key_hash = hashed_key(text)
        return None if key_hash is None else await self.find_hashed(key_hash)

    async def find_hashed(self, key_hash: str) -> ApiKey | None:
        """The key with this hash; None if there is none, or it is revoked.

        Keys are not cached, so that no process accepts a key after it was revoked.
        """
        row = await self._engine.read(partial(case_access.key_by_hash, key_hash))
        return None if row is None or row.revoked_at is not None else _api_key(row)

    def _now(self) -> int:
        return milliseconds(self._clock)


def hashed_key(text: str) -> str | None:
    """The hash of a key; None for a text that cannot be a key."""
    return None if _KEY.fullmatch(text) is None else hash_token(text)


def _encoded(name: str) -> str:
    try:
        return encode_text(name) or ""
    except ValueError:
        raise StoreError("a key's name must be valid Unicode") from None


def _api_key(row: KeyRow) -> ApiKey:
    name = decode_text(row.name) or ""
    return ApiKey(row.key_id, name, seconds(row.created_at), seconds(row.revoked_at))
