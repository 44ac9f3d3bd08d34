"""Grants in SQL: the part of an SQL checkpointer that is a `GrantStore`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from assent.checkpointer.opened import Opened, decode_body, encode_body
from assent.checkpointer.rows import checked_id
from assent.errors import StoreError
from assent.messages import JsonObject
from assent.store.finish import finish
from assent.store.rows import decode_text, encode_text


class SqlGrants(Opened):
    """Grants, as `assent.permissions.GrantStore` wants them kept; times are epoch ms, by the caller's clock."""

    async def save_grant(
        self, session: str, key: str, body: JsonObject, *, created_at: int, expires_at: int | None
    ) -> None:
        """Store a grant, in place of one of the same key, which is a text of any length.

        The session's grants that have expired by ``created_at`` are removed on the way.
        """
        grant = {
            "session": checked_id("session", session),
            "digest": _digest(key),
            "key": encode_text(key),
            "body": encode_body(body),
            "created_at": created_at,
            "expires_at": expires_at,
            "given_by": by if isinstance(by := body.get("given_by"), str) else None,
        }
        await finish(self._store.save_grant(grant))

    async def find_grants(self, session: str, keys: Sequence[str], now: int) -> list[tuple[str, JsonObject]]:
        """Those of these keys that are granted and have not expired, in the order given, with their bodies."""
        checked_id("session", session)
        by_digest = {_digest(key): key for key in keys}
        found = await self._store.find_grants(session, list(by_digest), now)
        return [(key, decode_body(found[it])) for it, key in by_digest.items() if it in found]

    async def list_grants(self, session: str, now: int) -> list[tuple[str, JsonObject]]:
        """All of a session's grants that have not expired, oldest first."""
        rows = await self._store.grants(checked_id("session", session), now)
        return [(decode_text(key) or "", decode_body(body)) for key, body in rows]

    async def delete_grant(self, session: str, key: str) -> bool:
        """Revoke a grant; False if there was none."""
        checked_id("session", session)
        return await finish(self._store.remove_grant(session, key, _digest(key), self._now()))


def _digest(key: str) -> str:
    """What a key is found by: keys are longer than an index takes, and may hold any character."""
    try:
        return hashlib.sha256(key.encode()).hexdigest()
    except UnicodeEncodeError:
        raise StoreError(f"key {key[:40]!r} is not valid Unicode") from None
