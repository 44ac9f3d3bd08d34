"""Transactions on grants (permissions that a person gave), by session and key.

A key may have any length, so a row is found by its SHA-256 digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from sqlalchemy import and_, delete, func, or_, select

from askfirst.account import os_account
from askfirst.store import audit, tables
from askfirst.store.audit import Entry, claimed
from askfirst.store.rows import Row, decode_text
from askfirst.store.statement import Statement, Transaction, param, upsert

FOUND_AT_ONCE = 50
"""How many keys one statement looks for."""

_P = tables.permissions.c
_SESSION = _P.session == param("session")
_THIS = and_(_SESSION, _P.digest == param("digest"))
_VALID = or_(_P.expires_at.is_(None), _P.expires_at > param("now"))

SAVE = upsert(tables.permissions, update=("key", "body", "created_at", "expires_at"))
FORGET_EXPIRED = Statement(delete(tables.permissions).where(_SESSION, _P.expires_at <= param("created_at")))
FIND = Statement(
    select(_P.digest, _P.body).where(
        _SESSION, _P.digest.in_([param(f"d{n}") for n in range(FOUND_AT_ONCE)]), _VALID
    )
)
ALL = Statement(select(_P.key, _P.body).where(_SESSION, _VALID).order_by(_P.created_at, _P.digest))
LOCKED = Statement(select(_P.digest).where(_THIS).with_for_update())
USES = Statement(select(func.count()).where(tables.effects.c.granted == param("granted")))
DELETE = Statement(delete(tables.permissions).where(_THIS))


def save_grant(grant: Row) -> Transaction[None]:
    """Store a grant, replacing one with the same key, and delete the session's expired grants."""
    yield FORGET_EXPIRED, grant
    yield SAVE, grant
    actor = os_account()
    detail = {
        "key": decode_text(grant["key"]),
        "content_sha256": hashlib.sha256(grant["body"].encode()).hexdigest(),
        "expires_at": grant["expires_at"],
        **claimed(grant["given_by"], actor),
    }
    yield from audit.append([Entry("grant.given", grant["session"], actor, grant["created_at"], detail)])


def find_grants(session: str, digests: Sequence[str], now: int) -> Transaction[dict[str, str]]:
    """The valid ones among these grants, their bodies by digest."""
    found: dict[str, str] = {}
    for start in range(0, len(digests), FOUND_AT_ONCE):
        batch = digests[start : start + FOUND_AT_ONCE]
        padded = [*batch, *[batch[-1]] * (FOUND_AT_ONCE - len(batch))]
        rows = yield FIND, {"session": session, "now": now, **{f"d{n}": it for n, it in enumerate(padded)}}
        found |= dict(rows)
    return found


def all_grants(session: str, now: int) -> Transaction[list[tuple[str, str]]]:
    """Keys and bodies of a session's valid grants, oldest first."""
    rows = yield ALL, {"session": session, "now": now}
    return [(key, body) for key, body in rows]


def remove_grants(
    session: str, key: str, digest: str, now: int
) -> tuple[Callable[[], Transaction[bool]], Callable[[], Transaction[bool | None]]]:
    """The transaction that deletes a grant, and the check after an indeterminate commit of it."""
    params = {"session": session, "digest": digest}
    there = False

    def remove() -> Transaction[bool]:
        nonlocal there
        there = bool((yield DELETE, params))
        if there:
            granted = hashlib.sha256(f"{session}\0{key}".encode()).hexdigest()
            [(uses,)] = yield USES, {"granted": granted}
            detail = {"key": key, "uses": uses}
            revoked = Entry("grant.revoked", session, os_account(), now, detail)
            yield from audit.append([revoked])
        return there

    def landed() -> Transaction[bool | None]:
        rows = yield LOCKED, params
        return None if rows else there

    return remove, landed
