"""Grants: what a person has allowed for good, and where they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal, Protocol, get_args

from pydantic import TypeAdapter

from assent.digests import canonical_json
from assent.json_types import JsonObject
from assent.permissions.decision import Decision, PendingAction

GrantScope = Literal["call", "tool"]
"""``"call"``: these very arguments. ``"tool"``: the tool, whatever the arguments."""

SCOPES: tuple[GrantScope, ...] = get_args(GrantScope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An allow that a person has given, for one call or for one tool, in one session.

    ``given_by`` is who gave it; ``created_at`` and ``expires_at`` are epoch milliseconds, None for no end.
    Where ``agent_path`` is given it counts for the agent there alone, and for the subagents below it if
    ``inherited``; else for every agent of the session.
    """

    session: str
    key: str
    decision: Decision
    scope: GrantScope
    principal: str
    toolset: str | None
    tool: str
    agent_path: tuple[str, ...]
    inherited: bool
    given_by: str | None
    created_at: int
    expires_at: int | None

    @property
    def digest(self) -> str:
        """What the ledger of effects names it by, of calls that ran because of it: SHA-256 of session and key."""
        return hashlib.sha256(f"{self.session}\0{self.key}".encode()).hexdigest()

    def to_json(self) -> JsonObject:
        """Its body as a store keeps it: everything but session and key."""
        body: dict[str, Any] = asdict(self)
        del body["session"], body["key"], body["decision"]["grant"]
        return {**body, "agent_path": list(self.agent_path)}

    @classmethod
    def from_json(cls, session: str, key: str, body: Mapping[str, Any]) -> Grant:
        """The grant that `to_json` wrote; raises ``ValueError`` if it is none."""
        return _grants().validate_python({**body, "session": session, "key": key})

    def covers(self, action: PendingAction, now: int) -> bool:
        """Whether it allows this call at this time (epoch milliseconds)."""
        if self.expires_at is not None and self.expires_at <= now:
            return False
        path, below = self.agent_path, action.agent_path
        if path and path != (below[: len(path)] if self.inherited else below):
            return False
        keys = [grant_key(action, self.scope, path)]
        if len(path) == 1:  # as it was written before an agent without a caller was named in the key
            keys.append(grant_key(action, self.scope, ()))
        return self.decision.verdict == "allow" and self.key in keys


@cache
def _grants() -> TypeAdapter[Grant]:
    return TypeAdapter(Grant)


def grant_key(
    action: PendingAction, scope: GrantScope = "call", agent_path: tuple[str, ...] | None = None
) -> str:
    """``principal:toolset:tool:hash(args)``, or ``principal:toolset:tool:*`` for the tool as a whole.

    The hash is SHA-256 (hex) over the canonical JSON of the arguments. Where the action names an agent, its
    path follows, as in ``@support>refunds``: a grant under that key is narrowed to it. Characters of names that
    stand for something here are escaped. Raises ``InvalidMessage`` for arguments that are no JSON.
    """
    path = action.agent_path if agent_path is None else agent_path
    names = (action.principal, action.toolset or "", action.tool)
    last = "*" if scope == "tool" else hashlib.sha256(canonical_json(dict(action.args))).hexdigest()
    key = ":".join([*map(_escaped, names), last])
    return f"{key}@{'>'.join(map(_escaped, path))}" if path else key


_ESCAPES = str.maketrans({char: f"%{ord(char):02X}" for char in "%:@>"})


def _escaped(name: str) -> str:
    return name.translate(_ESCAPES)


class GrantStore(Protocol):
    """Where grants are kept, by session and key. Checkpointers are one, `MemoryGrants` is another.

    ``body`` is what `Grant.to_json` gives; times are epoch milliseconds.
    """

    async def save_grant(
        self, session: str, key: str, body: JsonObject, *, created_at: int, expires_at: int | None
    ) -> None:
        """Keep a grant, in place of one of the same key."""
        ...

    async def find_grants(self, session: str, keys: Sequence[str], now: int) -> list[tuple[str, JsonObject]]:
        """Key and body of those among these grants that are there and have not expired."""
        ...

    async def list_grants(self, session: str, now: int) -> list[tuple[str, JsonObject]]:
        """Key and body of all grants of a session that have not expired."""
        ...

    async def delete_grant(self, session: str, key: str) -> bool:
        """Remove a grant, and say whether it was there. It counts no more from then on."""
        ...


class MemoryGrants:
    """Grants in this process's memory. Several caches may share one."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, tuple[JsonObject, int | None]]] = {}

    def put(self, session: str, key: str, body: JsonObject, *, expires_at: int | None) -> None:
        """Keep a grant, at once, in place of one of the same key."""
        self._sessions.setdefault(session, {})[key] = (body, expires_at)

    async def save_grant(
        self, session: str, key: str, body: JsonObject, *, created_at: int, expires_at: int | None
    ) -> None:
        """Keep a grant, in place of one of the same key."""
        self.put(session, key, body, expires_at=expires_at)

    async def find_grants(self, session: str, keys: Sequence[str], now: int) -> list[tuple[str, JsonObject]]:
        """Key and body of those among these grants that are there and have not expired."""
        grants = self._sessions.get(session, {})
        found = [(key, *grants[key]) for key in keys if key in grants]
        return [(key, body) for key, body, expires_at in found if expires_at is None or now < expires_at]

    async def list_grants(self, session: str, now: int) -> list[tuple[str, JsonObject]]:
        """Key and body of all grants of a session that have not expired."""
        return await self.find_grants(session, list(self._sessions.get(session, {})), now)

    async def delete_grant(self, session: str, key: str) -> bool:
        """Remove a grant, and say whether it was there."""
        return self._sessions.get(session, {}).pop(key, None) is not None
