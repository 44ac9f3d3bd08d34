"""A cache around a policy: decisions for a while, and a person's grants for the session."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from askfirst.clock import Clock, SystemClock
from askfirst.errors import InvalidMessage
from askfirst.permissions.decision import Decision, PendingAction, PermissionPolicy
from askfirst.permissions.evaluate import Failed, attempt
from askfirst.permissions.grants import Grant, GrantScope, GrantStore, SessionGrants, grant_key

MOST_DECISIONS = 10_000
"""How many decisions a cache keeps in memory; the oldest are dropped first."""

_Key = tuple[str, tuple[str, ...]]


class SessionPermissionCache:
    """A policy around another one, ``inner``, for one session.

    It caches ``inner``'s plain allow and deny decisions for ``ttl_seconds`` in this process, under
    ``principal:toolset:tool:hash(args)``. A decision to ask is never cached. A grant (see `remember`) turns an
    ask into an allow; a deny of ``inner`` stays a deny. Grants are kept in ``store`` and looked up at every
    evaluation, so that a grant given or revoked by another worker counts from the next call.
    """

    def __init__(
        self,
        inner: PermissionPolicy,
        ttl_seconds: float = 300,
        *,
        store: GrantStore | None = None,
        session: str = "default",
        clock: Clock | None = None,
    ) -> None:
        self.inner = inner
        self.ttl_seconds = ttl_seconds
        self.session = session
        self._clock = clock or SystemClock()
        self._grants = SessionGrants(session, store, self._clock)
        self._decisions: dict[_Key, tuple[Decision, float]] = {}

    async def evaluate(self, action: PendingAction) -> Decision:
        """Decide about one call."""
        [decision] = await self.evaluate_many([action])
        return decision

    async def evaluate_many(self, actions: Sequence[PendingAction]) -> list[Decision]:
        """Decide about the calls of a message, with at most one lookup in the store."""
        now = self._clock.now()
        keys = [_key_of(action) for action in actions]
        kept = {place: self._kept(key, now) for place, key in enumerate(keys)}
        missing = [place for place, decision in kept.items() if decision is None]
        answers = await attempt(self.inner, [actions[place] for place in missing], None)
        fresh: dict[int, Decision] = {}
        for place, answer in zip(missing, answers, strict=True):
            if isinstance(answer, Failed):  # a failure is not cached: the policy may answer the next time
                fresh[place] = Decision.deny(answer.reason)
            else:
                fresh[place] = self._keep(keys[place], answer, now)
        decisions = [kept[place] or fresh[place] for place in range(len(actions))]
        return await self._grants.apply(actions, decisions)

    def remember(
        self,
        action: PendingAction,
        decision: Decision | Mapping[str, Any],
        *,
        scope: GrantScope = "call",
        ttl_seconds: float | None = None,
        by: str | None = None,
        inherit: bool = False,
    ) -> Awaitable[Grant]:
        """Grant this call; with ``scope="tool"``, its tool with any arguments.

        A grant lasts for the rest of the session or until `forget`; with ``ttl_seconds``, at most that long. It
        counts for every agent of the session. If the action has an ``agent_path``, it counts for that agent
        only, and with ``inherit`` for its subagents. ``by`` says who gave it. It counts at once; await the
        result to know that it is stored. Raises `InvalidPolicy` for a decision that is no plain allow.
        """
        return self._grants.give(
            action, Decision.of(decision), scope=scope, ttl_seconds=ttl_seconds, by=by, inherit=inherit
        )

    async def entries(self) -> list[Grant]:
        """The session's unexpired grants, with who gave them and when they expire."""
        return await self._grants.entries()

    async def forget(self, key: str) -> bool:
        """Revoke a grant by its ``key``; returns whether there was one."""
        return await self._grants.forget(key)

    def _kept(self, key: _Key | None, now: float) -> Decision | None:
        if key is None or key not in self._decisions:
            return None
        decision, until = self._decisions[key]
        return decision if now < until else None

    def _keep(self, key: _Key | None, decision: Decision, now: float) -> Decision:
        if key is None:
            return decision
        self._decisions.pop(key, None)
        if not decision.requires_approval:
            if len(self._decisions) >= MOST_DECISIONS:
                del self._decisions[next(iter(self._decisions))]
            self._decisions[key] = (decision, now + self.ttl_seconds)
        return decision


def _key_of(action: PendingAction) -> _Key | None:
    """The cache key of a decision; None for arguments that have no hash, whose decisions are not cached."""
    try:
        return grant_key(action, "call", ()), action.agent_path
    except InvalidMessage:
        return None
