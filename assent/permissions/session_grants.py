"""The grants of one session: giving them, finding those that cover a call, taking them back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from assent.clock import Clock
from assent.errors import InvalidMessage, InvalidPolicy, StoreError
from assent.permissions.closed import logger
from assent.permissions.decision import Decision, PendingAction
from assent.permissions.grants import SCOPES, Grant, GrantScope, GrantStore, MemoryGrants, grant_key


class SessionGrants:
    """Grants in a store, or in memory without one. Nothing of a store is kept here."""

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
            expires_at=None if ttl_seconds is None else now + int(ttl_seconds * 1000),
        )
        if isinstance(self._store, MemoryGrants):
            self._store.put(grant.session, grant.key, grant.to_json(), expires_at=grant.expires_at)
            return _Given(grant, None)
        return _Given(grant, self._start_writing(grant))

    async def apply(self, actions: Sequence[PendingAction], decisions: Sequence[Decision]) -> list[Decision]:
        """The decisions, those that ask replaced where a grant covers the call."""
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
        """Those that have not ended."""
        await self._written()
        return self._read(await self._store.list_grants(self._session, self._now()))

    async def forget(self, key: str) -> bool:
        """Take one back, and say whether there was one."""
        await self._written()
        return await self._store.delete_grant(self._session, key)

    async def _find(self, keys: Sequence[str], now: int) -> dict[str, Grant]:
        """The grants of these keys. A store that fails has none: a grant could only have loosened."""
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
        """Wait for grants that are on their way to the store, so that they count at once."""
        if self._writing:
            await asyncio.wait(self._writing)

    def _now(self) -> int:
        return int(self._clock.now() * 1000)


class _Given(Awaitable[Grant]):
    """A grant, perhaps on its way to the store; awaiting it raises if it did not get there."""

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
