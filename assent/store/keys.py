"""API keys: issued, found by what they hash to, revoked for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import insert, select, update

from assent.store import audit, service_tables
from assent.store.audit import Entry
from assent.store.statement import Statement, Transaction, param

_K = service_tables.keys.c


class KeyRow(NamedTuple):
    """A key's columns, in the order in which they are read."""

    key_id: str
    name: str
    """As JSON: any text."""
    key_hash: str
    created_at: int
    revoked_at: int | None
    write_id: int


COLUMNS = tuple(_K[name] for name in KeyRow._fields)
_THIS = _K.key_id == param("key_id")
INSERT = Statement(
    insert(service_tables.keys).values({name: param(name) for name in KeyRow._fields}).inline()
)
BY_HASH = Statement(select(*COLUMNS).where(_K.key_hash == param("key_hash")))
REVOKED_AT = Statement(select(_K.revoked_at).where(_THIS))
LOCKED = Statement(select(*COLUMNS).where(_THIS).with_for_update())
REVOKE = Statement(
    update(service_tables.keys)
    .where(_THIS, _K.revoked_at.is_(None))
    .values(revoked_at=param("revoked_at"), write_id=param("write_id"))
)
ALL = Statement(select(*COLUMNS).order_by(_K.created_at, _K.key_id))


def issue(row: KeyRow, entries: Sequence[Entry]) -> Transaction[KeyRow]:
    """Keep a new key."""
    yield INSERT, row._asdict()
    yield from audit.append(entries)
    return row


def issued(row: KeyRow) -> Transaction[KeyRow | None]:
    """A key that was perhaps kept, nobody knows; None if it was not."""
    rows = yield LOCKED, {"key_id": row.key_id}
    return KeyRow(*rows[0]) if rows else None


def revoke(key_id: str, now: int, write_id: int, entries: Sequence[Entry]) -> Transaction[bool]:
    """End a key; False if there is none, or it is revoked already."""
    if not (yield REVOKE, {"key_id": key_id, "revoked_at": now, "write_id": write_id}):
        return False
    yield from audit.append(entries)
    return True


def revoked(key_id: str, write_id: int) -> Transaction[bool | None]:
    """Whether a key was revoked, nobody knows, by this very write; None if it was not."""
    rows = yield LOCKED, {"key_id": key_id}
    return True if rows and KeyRow(*rows[0]).write_id == write_id else None


def by_hash(key_hash: str) -> Transaction[KeyRow | None]:
    """The key that hashes to this, revoked or not."""
    rows = yield BY_HASH, {"key_hash": key_hash}
    return KeyRow(*rows[0]) if rows else None


def is_revoked(key_id: str) -> Transaction[bool]:
    """Whether there is such a key and it is revoked."""
    rows = yield REVOKED_AT, {"key_id": key_id}
    return bool(rows) and rows[0][0] is not None


def listing() -> Transaction[list[KeyRow]]:
    """All keys, oldest first."""
    return [KeyRow(*row) for row in (yield ALL, {})]
