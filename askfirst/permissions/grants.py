"""Permissions granted for a session, and where they are kept."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal, Protocol, get_args

from pydantic import TypeAdapter

from askfirst.clock import Clock, seconds, to_milliseconds
from askfirst.digests import canonical_json
from askfirst.errors import InvalidMessage, InvalidPolicy, StoreError
from askfirst.messages import JsonObject
from askfirst.permissions.decision import Decision, PendingAction
from askfirst.permissions.evaluate import logger

GrantScope = Literal["call", "tool"]
"""``"call"``: these very arguments. ``"tool"``: the tool, whatever the arguments."""

SCOPES: tuple[GrantScope, ...] = get_args(GrantScope)
_TIMES = ("created_at", "expires_at")
"""In a grant's body they are in milliseconds, as a store keeps all times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An allow that a person has given, for one call or for one tool, in one session.

    ``given_by`` is who gave it; ``created_at`` and ``expires_at`` are seconds since 1970 (UTC), None for no end.
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
    created_at: float
    expires_at: float | None

    @property
    def digest(self) -> str:
        """SHA-256 of session and key; the ledger of effects has it for calls that ran by this grant."""
        return hashlib.sha256(f"{self.session}\0{self.key}".encode()).hexdigest()

    def to_json(self) -> JsonObject:
        """The grant's body as a store keeps it: everything but session and key."""
        body: dict[str, Any] = asdict(self)
        del body["session"], body["key"], body["decision"]["grant"]
        times = {name: to_milliseconds(body[name]) for name in _TIMES}
        return {**body, **times, "agent_path": list(self.agent_path)}

    @classmethod
    def from_json(cls, session: str, key: str, body: Mapping[str, Any]) -> Grant:
        """The grant that `to_json` wrote; raises ``ValueError`` for anything else."""
        times = {name: seconds(kept) if isinstance(kept := body.get(name), int) else kept for name in _TIMES}
        return _grants().validate_python({**body, **times, "session": session, "key": key})

    def covers(self, action: PendingAction, now: float) -> bool:
        """Whether the grant allows this call at this time (seconds since 1970)."""
        if self.expires_at is not None and self.expires_at <= now:
            return False
        path, below = self.agent_path, action.agent_path
        if path and path != (below[: len(path)] if self.inherited else below):
            return False
        keys = [grant_key(action, self.scope, path)]
        if len(path) == 1:  # an older form of the key, without the path of a root agent
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
    """A store of grants, by session and key. Checkpointers are one, `MemoryGrants` is another.

    ``body`` is what `Grant.to_json` gives. Arguments that are times are seconds since 1970.
    """

    async def save_grant(
        self, session: str, key: str, body: JsonObject, *, created_at: float, expires_at: float | None
    ) -> None:
        """Keep a grant, in place of one of the same key."""
        ...

    async def find_grants(
        self, session: str, keys: Sequence[str], now: float
    ) -> list[tuple[str, JsonObject]]:
        """Key and body of those among these grants that are there and have not expired."""
        ...

    async def list_grants(self, session: str, now: float) -> list[tuple[str, JsonObject]]:
        """Key and body of all grants of a session that have not expired."""
        ...

    async def delete_grant(self, session: str, key: str) -> bool:
        """Delete a grant; returns whether it was there. It stops counting at once."""
        ...


class MemoryGrants:
    """Grants in this process's memory. Several caches may share one."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, tuple[JsonObject, float | None]]] = {}

    def put(self, session: str, key: str, body: JsonObject, *, expires_at: float | None) -> None:
        """Keep a grant, at once, in place of one of the same key."""
        self._sessions.setdefault(session, {})[key] = (body, expires_at)

    async def save_grant(
        self, session: str, key: str, body: JsonObject, *, created_at: float, expires_at: float | None
    ) -> None:
        """Keep a grant, in place of one of the same key."""
        self.put(session, key, body, expires_at=expires_at)

    async def find_grants(
        self, session: str, keys: Sequence[str], now: float
    ) -> list[tuple[str, JsonObject]]:
        """Key and body of those among these grants that are there and have not expired."""
        grants = self._sessions.get(session, {})
        found = [(key, *grants[key]) for key in keys if key in grants]
        return [(key, body) for key, body, expires_at in found if expires_at is None or now < expires_at]

    async def list_grants(self, session: str, now: float) -> list[tuple[str, JsonObject]]:
        """Key and body of all grants of a session that have not expired."""
        return await self.find_grants(session, list(self._sessions.get(session, {})), now)

    async def delete_grant(self, session: str, key: str) -> bool:
        """Remove a grant, and say whether it was there."""
        return self._sessions.get(session, {}).pop(key, None) is not None


# The grants of one session: giving, finding those that cover a call, revoking.


class SessionGrants:
    """A session's grants, in a store or (without one) in memory. Grants of a store are not cached here."""

    def __init__(self, session: str, store: GrantStore | None, clock: Clock) -> None:
        self._session = session
        self._store = MemoryGrants() if store is None else store
        self._clock = clock
        self._writing: set[asyncio.Task[None]] = set()

    def give(
        self,
        action: PendingAction,
        decision: Decision,
        *,
        scope: GrantScope,
        ttl_seconds: float | None,
        by: str | None,
        inherit: bool,
    ) -> Awaitable[Grant]:
        """Give a grant; see `SessionPermissionCache.remember`."""
        _check(decision, scope, ttl_seconds)
        now = self._now()
        grant = Grant(
            session=self._session,
            key=grant_key(action, scope),
            decision=decision,
            scope=scope,
            principal=action.principal,
            toolset=action.toolset,
            tool=action.tool,
            agent_path=action.agent_path,
            inherited=inherit,
            given_by=by,
            created_at=now,
            expires_at=None if ttl_seconds is None else now + ttl_seconds,
        )
        if isinstance(self._store, MemoryGrants):
            self._store.put(grant.session, grant.key, grant.to_json(), expires_at=grant.expires_at)
            return _Given(grant, None)
        return _Given(grant, self._start_writing(grant))

    async def apply(self, actions: Sequence[PendingAction], decisions: Sequence[Decision]) -> list[Decision]:
        """The decisions; an ask becomes an allow where a grant covers its call."""
        now = self._now()
        asking = {
            place: _keys(actions[place]) for place, each in enumerate(decisions) if each.verdict == "ask"
        }
        wanted = list(dict.fromkeys(key for keys in asking.values() for key in keys))
        grants = await self._find(wanted, now) if wanted else {}
        result = list(decisions)
        for place, keys in asking.items():
            covering = (grants[key] for key in keys if key in grants)
            grant = next((each for each in covering if each.covers(actions[place], now)), None)
            if grant is not None:
                result[place] = _allowed_by(grant)
        return result

    async def entries(self) -> list[Grant]:
        """The unexpired grants."""
        await self._written()
        return self._read(await self._store.list_grants(self._session, self._now()))

    async def forget(self, key: str) -> bool:
        """Revoke a grant; returns whether there was one."""
        await self._written()
        return await self._store.delete_grant(self._session, key)

    async def _find(self, keys: Sequence[str], now: float) -> dict[str, Grant]:
        """The grants with these keys. None if the store fails, which is safe: a grant can only loosen."""
        try:
            await self._written()
            found = await self._store.find_grants(self._session, keys, now)
        except Exception as error:
            logger.error("grants could not be looked up (%s); none counts", type(error).__name__)
            return {}
        return {grant.key: grant for grant in self._read(found)}

    def _read(self, found: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Grant]:
        grants: list[Grant] = []
        for key, body in found:
            try:
                grants.append(Grant.from_json(self._session, key, body))
            except ValueError:
                logger.error("the stored grant %s cannot be read; it does not count", key)
        return grants

    def _start_writing(self, grant: Grant) -> asyncio.Task[None]:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise StoreError("a grant can only be stored from async code; call remember() there") from None
        task = loop.create_task(self._write(grant))
        self._writing.add(task)
        task.add_done_callback(self._wrote)
        return task

    async def _write(self, grant: Grant) -> None:
        await self._store.save_grant(
            grant.session,
            grant.key,
            grant.to_json(),
            created_at=grant.created_at,
            expires_at=grant.expires_at,
        )

    def _wrote(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a grant could not be stored (%s); it does not count", type(error).__name__)

    async def _written(self) -> None:
        """Wait until grants being written are stored, so that they count at once."""
        if self._writing:
            await asyncio.wait(self._writing)

    def _now(self) -> float:
        return self._clock.now()


class _Given(Awaitable[Grant]):
    """A grant that may still be being written to the store; awaiting it raises if the write failed."""

    __slots__ = ("_grant", "_writing")

    def __init__(self, grant: Grant, writing: asyncio.Task[None] | None) -> None:
        self._grant = grant
        self._writing = writing

    def __await__(self) -> Generator[Any, None, Grant]:
        if self._writing is not None:
            yield from asyncio.shield(self._writing).__await__()
        return self._grant


def _check(decision: Decision, scope: str, ttl_seconds: float | None) -> None:
    if decision.verdict != "allow":
        raise InvalidPolicy([f"only an allow can be remembered, not a decision to {decision.verdict}"])
    if scope not in SCOPES:
        raise InvalidPolicy([f"the scope of a grant is {' or '.join(SCOPES)}, not {scope!r}"])
    if ttl_seconds is not None and not ttl_seconds > 0:
        raise InvalidPolicy(["ttl_seconds of a grant is more than 0, or None for no end"])


def _keys(action: PendingAction) -> list[str]:
    """The keys of all grants that could cover a call: of its own agent, and of those above it."""
    path = action.agent_path
    above = [path[:length] for length in range(len(path), -1, -1)]
    keys = [grant_key(action, "tool", each) for each in above]
    with suppress(InvalidMessage):  # arguments that have no hash; only the tool as a whole can be granted
        keys += [grant_key(action, "call", each) for each in above]
    return list(dict.fromkeys(keys))


def _allowed_by(grant: Grant) -> Decision:
    by = "" if grant.given_by is None else f" by {grant.given_by}"
    return replace(Decision.allow(f"granted{by} for this {grant.scope} ({grant.key})"), grant=grant.digest)
