"""The cache: decisions for a while, grants for good, and neither where it should not be."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from askfirst.digests import canonical_json
from askfirst.errors import InvalidPolicy, StoreError
from askfirst.hitl.testing import FakeClock
from askfirst.messages import JsonObject
from askfirst.permissions import (
    Decision,
    Grant,
    MemoryGrants,
    PendingAction,
    SessionPermissionCache,
    StaticPermissionPolicy,
    decide,
    grant_key,
)
from askfirst.permissions import cache as cache_module

pytestmark = pytest.mark.anyio

ALLOW = Decision.allow()
DELETE = PendingAction(tool="delete", toolset="crm", principal="ann", args={"id": 5}, agent_path=("support",))


def asked_about(**changes: Any) -> PendingAction:
    fields = {name: getattr(DELETE, name) for name in ("tool", "toolset", "principal", "args", "agent_path")}
    return PendingAction(**(fields | changes))


class Inner:
    """A policy that says the same about everything, and counts."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision
        self.asked = 0

    async def evaluate(self, action: PendingAction) -> Decision:
        self.asked += 1
        if isinstance(self.decision, Exception):
            raise self.decision
        return self.decision


class SlowGrants:
    """A store like a database: nothing happens before it is awaited, and it counts its reads."""

    def __init__(self) -> None:
        self.grants = MemoryGrants()
        self.fails = False
        self.reads = 0

    async def _travel(self) -> None:
        await asyncio.sleep(0)
        if self.fails:
            raise ConnectionError("s3cr3t")

    async def save_grant(
        self, session: str, key: str, body: JsonObject, *, created_at: int, expires_at: int | None
    ) -> None:
        for _ in range(20):  # longer than a look takes
            await self._travel()
        await self.grants.save_grant(session, key, body, created_at=created_at, expires_at=expires_at)

    async def find_grants(self, session: str, keys: Sequence[str], now: int) -> list[tuple[str, JsonObject]]:
        self.reads += 1
        await self._travel()
        return await self.grants.find_grants(session, keys, now)

    async def list_grants(self, session: str, now: int) -> list[tuple[str, JsonObject]]:
        await self._travel()
        return await self.grants.list_grants(session, now)

    async def delete_grant(self, session: str, key: str) -> bool:
        await self._travel()
        return await self.grants.delete_grant(session, key)


async def verdict(policy: SessionPermissionCache, action: PendingAction = DELETE) -> str:
    return (await policy.evaluate(action)).verdict


# The seed's example.


async def test_the_example_of_the_seed() -> None:
    policy = SessionPermissionCache(
        StaticPermissionPolicy([], {"allowed": True, "requires_approval": False}),
        ttl_seconds=300,
    )
    pending_action = PendingAction(tool="delete_account", args={"id": "12345"})
    policy.remember(pending_action, {"allowed": True, "requires_approval": False})
    assert await policy.evaluate(pending_action) == Decision.allow()


def test_remembering_needs_no_event_loop() -> None:
    policy = SessionPermissionCache(Inner(Decision.ask()))
    policy.remember(DELETE, {"allowed": True, "requires_approval": False})
    assert asyncio.run(policy.evaluate(DELETE)).verdict == "allow"


# Keys.


def test_the_key() -> None:
    digest = hashlib.sha256(canonical_json({"id": 5})).hexdigest()
    for_all = asked_about(agent_path=())
    assert grant_key(for_all) == f"ann:crm:delete:{digest}"
    assert grant_key(for_all, "tool") == "ann:crm:delete:*"
    assert grant_key(DELETE) == f"ann:crm:delete:{digest}@support"
    assert grant_key(PendingAction(tool="t"), "tool") == "*::t:*"
    assert (
        grant_key(asked_about(agent_path=("support", "refunds")), "tool")
        == "ann:crm:delete:*@support>refunds"
    )


def test_names_cannot_be_made_to_collide() -> None:
    names = ["a", "a:b", "b", "", "a%3Ab", "a@b", "*"]
    actions = [
        PendingAction(tool=tool, toolset=toolset, principal=principal, agent_path=path)
        for tool in names
        for toolset in names
        for principal in names
        for path in ((), ("x", "y"), ("x>y", "z"), ("x", "y>z"))
    ]
    assert len({grant_key(action, "tool") for action in actions}) == len(actions)


# Decisions.


@pytest.mark.parametrize("decision", [Decision.allow("fine"), Decision.deny("never")])
async def test_plain_decisions_are_kept_for_a_while(decision: Decision) -> None:
    clock, inner = FakeClock(), Inner(decision)
    policy = SessionPermissionCache(inner, 300, clock=clock)
    assert await policy.evaluate(DELETE) == await policy.evaluate(DELETE) == decision
    await clock.advance(299)
    assert await policy.evaluate(asked_about(tool_call_id="other")) == decision
    assert inner.asked == 1
    await clock.advance(1)
    assert await policy.evaluate(DELETE) == decision
    assert inner.asked == 2


@pytest.mark.parametrize("decision", [Decision.ask(), Decision(True, True), KeyError(), "nonsense"])
async def test_neither_asking_nor_failing_is_kept(decision: Any) -> None:
    inner = Inner(decision)
    policy = SessionPermissionCache(inner)
    first, second = await policy.evaluate(DELETE), await policy.evaluate(DELETE)
    assert first == second
    assert first.verdict == ("ask" if isinstance(decision, Decision) else "deny")
    assert inner.asked == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"args": {"id": 6}},
        {"tool": "other"},
        {"toolset": None},
        {"principal": "bob"},
        {"agent_path": ()},
        {"agent_path": ("support", "refunds")},
        {"args": {"id": float("nan")}},
    ],
)
async def test_what_differs_is_evaluated_by_itself(changes: Mapping[str, Any]) -> None:
    inner = Inner(Decision.allow())
    policy = SessionPermissionCache(inner)
    await policy.evaluate(DELETE)
    inner.decision = Decision.deny("no")
    assert await verdict(policy, asked_about(**changes)) == "deny"


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MOST_DECISIONS", 3)
    inner = Inner(Decision.allow())
    policy = SessionPermissionCache(inner)
    for number in range(10):
        await policy.evaluate(asked_about(args={"n": number}))
    assert len(policy._decisions) == 3
    await policy.evaluate(asked_about(args={"n": 9}))
    assert inner.asked == 10
    await policy.evaluate(asked_about(args={"n": 0}))
    assert inner.asked == 11


async def test_one_message_is_one_question_to_each() -> None:
    class Batch(Inner):
        async def evaluate_many(self, actions: Sequence[PendingAction]) -> list[Decision]:
            self.asked += 1
            return [Decision.ask() if action.tool == "delete" else ALLOW for action in actions]

    inner, store = Batch(None), SlowGrants()
    policy = SessionPermissionCache(inner, store=store)
    await policy.remember(DELETE, ALLOW)
    message = [DELETE, asked_about(args={}), asked_about(tool="read"), DELETE]
    verdicts = [each.verdict for each in await decide(policy, message)]
    assert verdicts == ["allow", "ask", "allow", "allow"]
    assert (inner.asked, store.reads) == (1, 1)


# Grants.


@pytest.fixture(params=["memory", "slow"])
def store(request: pytest.FixtureRequest) -> Any:
    return MemoryGrants() if request.param == "memory" else SlowGrants()


async def test_a_grant_counts_at_once_without_being_awaited(store: Any) -> None:
    policy = SessionPermissionCache(Inner(Decision.ask()), store=store)
    assert await verdict(policy) == "ask"
    policy.remember(DELETE, ALLOW, by="ann")
    decision = await policy.evaluate(DELETE)
    assert decision.verdict == "allow"
    assert decision.reason == f"granted by ann for this call ({grant_key(DELETE)})"


async def test_a_grant_is_for_one_call_or_for_the_tool(store: Any) -> None:
    policy = SessionPermissionCache(Inner(Decision.ask()), store=store)
    await policy.remember(DELETE, ALLOW)
    assert await verdict(policy, asked_about(args={"id": 6})) == "ask"
    await policy.remember(DELETE, ALLOW, scope="tool")
    assert await verdict(policy, asked_about(args={"id": 6})) == "allow"
    assert await verdict(policy, asked_about(args={"id": float("nan")})) == "allow"
    for changes in ({"tool": "other"}, {"toolset": "x"}, {"toolset": None}, {"principal": "bob"}):
        assert await verdict(policy, asked_about(**changes)) == "ask"


async def test_a_deny_of_the_policy_beats_a_grant(store: Any) -> None:
    inner = Inner(Decision.ask())
    policy = SessionPermissionCache(inner, store=store)
    await policy.remember(DELETE, ALLOW, scope="tool")
    inner.decision = Decision.deny("the policy was tightened")
    assert await policy.evaluate(DELETE) == Decision.deny("the policy was tightened")


@pytest.mark.parametrize("scope", ["call", "tool"])
async def test_subagents_do_not_inherit_unless_said(store: Any, scope: Any) -> None:
    policy = SessionPermissionCache(Inner(Decision.ask()), store=store)
    child, grandchild = (asked_about(agent_path=("support", *rest)) for rest in (("r",), ("r", "s")))
    sibling = asked_about(agent_path=("support", "other"))
    await policy.remember(DELETE, ALLOW, scope=scope)
    assert [await verdict(policy, each) for each in (DELETE, child, grandchild)] == ["allow", "ask", "ask"]
    await policy.remember(child, ALLOW, scope=scope, inherit=True)
    verdicts = [await verdict(policy, each) for each in (DELETE, child, grandchild, sibling)]
    assert verdicts == ["allow", "allow", "allow", "ask"]
    other_root = asked_about(agent_path=("billing",))
    assert [await verdict(policy, each) for each in (other_root, asked_about(agent_path=()))] == [
        "ask",
        "ask",
    ]


@pytest.mark.parametrize("scope", ["call", "tool"])
@pytest.mark.parametrize("path", [(), ("support",), ("support", "refunds")])
async def test_an_agent_path_narrows_a_grant_only_where_it_is_given(
    store: Any, scope: Any, path: tuple[str, ...]
) -> None:
    policy = SessionPermissionCache(Inner(Decision.ask()), store=store)
    await policy.remember(asked_about(agent_path=()), ALLOW, scope=scope)
    await policy.remember(asked_about(tool="narrowed"), ALLOW, scope=scope)
    assert await verdict(policy, asked_about(agent_path=path)) == "allow"
    narrowed = asked_about(tool="narrowed", agent_path=path)
    assert await verdict(policy, narrowed) == ("allow" if path == ("support",) else "ask")
    assert await verdict(policy, asked_about(agent_path=path, principal="bob")) == "ask"


async def test_a_narrow_grant_does_not_take_the_place_of_a_wide_one(store: Any) -> None:
    policy = SessionPermissionCache(Inner(Decision.ask()), store=store)
    wide = await policy.remember(asked_about(agent_path=()), ALLOW)
    narrow = await policy.remember(DELETE, ALLOW)
    assert await policy.forget(narrow.key)
    assert await verdict(policy) == "allow"
    assert await policy.forget(wide.key)
    assert await verdict(policy) == "ask"


async def test_a_grant_stored_before_its_agent_stood_in_the_key_counts_as_before() -> None:
    grants = MemoryGrants()
    policy = SessionPermissionCache(Inner(Decision.ask()), store=grants)
    given = await policy.remember(DELETE, ALLOW)
    await policy.forget(given.key)
    grants.put("default", given.key.removesuffix("@support"), given.to_json(), expires_at=None)
    assert await verdict(policy) == "allow"
    assert await verdict(policy, asked_about(agent_path=("billing",))) == "ask"
    assert await verdict(policy, asked_about(agent_path=("support", "refunds"))) == "ask"


async def test_grants_end(store: Any) -> None:
    clock = FakeClock()
    policy = SessionPermissionCache(Inner(Decision.ask()), 300, store=store, clock=clock)
    await policy.remember(DELETE, ALLOW, ttl_seconds=60)
    await policy.remember(asked_about(tool="other"), ALLOW)
    await policy.remember(asked_about(tool="for ever"), ALLOW, ttl_seconds=None)
    assert [each.expires_at for each in await policy.entries() if each.tool != "delete"] == [None, None]
    await clock.advance(59)
    assert await verdict(policy) == "allow"
    await clock.advance(1)
    assert await verdict(policy) == "ask"
    await clock.advance(10 * 86_400)  # "for the rest of the session", if nothing is said
    assert await verdict(policy, asked_about(tool="other")) == "allow"
    assert await verdict(policy, asked_about(tool="for ever")) == "allow"
    assert {grant.tool for grant in await policy.entries()} == {"other", "for ever"}


async def test_entries_say_who_gave_what_until_when(store: Any) -> None:
    clock = FakeClock()
    policy = SessionPermissionCache(Inner(Decision.ask()), store=store, session="s", clock=clock)
    given = await policy.remember(DELETE, ALLOW, scope="tool", ttl_seconds=60, by="ann", inherit=True)
    now = clock.now()
    assert await policy.entries() == [given]
    assert given == Grant(
        session="s",
        key="ann:crm:delete:*@support",
        decision=ALLOW,
        scope="tool",
        principal="ann",
        toolset="crm",
        tool="delete",
        agent_path=("support",),
        inherited=True,
        given_by="ann",
        created_at=now,
        expires_at=now + 60,
    )
    assert Grant.from_json("s", given.key, given.to_json()) == given


async def test_a_grant_taken_back_counts_no_more_in_any_worker(store: Any) -> None:
    one, two = (SessionPermissionCache(Inner(Decision.ask()), store=store, session="s") for _ in range(2))
    other = SessionPermissionCache(Inner(Decision.ask()), store=store, session="t")
    grant = await one.remember(DELETE, ALLOW)
    assert [await verdict(each) for each in (one, two, other)] == ["allow", "allow", "ask"]
    assert await two.forget(grant.key)
    assert [await verdict(each) for each in (one, two)] == ["ask", "ask"]
    assert not await one.forget(grant.key)
    assert await one.entries() == []


async def test_forgetting_waits_for_what_is_being_stored() -> None:
    policy = SessionPermissionCache(Inner(Decision.ask()), store=SlowGrants())
    policy.remember(DELETE, ALLOW)
    assert await policy.forget(grant_key(DELETE))
    assert await verdict(policy) == "ask"


@pytest.mark.parametrize("decision", [Decision.ask(), Decision.deny("no"), Decision(True, True)])
async def test_only_an_allow_can_be_remembered(decision: Decision) -> None:
    policy = SessionPermissionCache(Inner(Decision.ask()))
    with pytest.raises(InvalidPolicy, match="only an allow can be remembered"):
        policy.remember(DELETE, decision)
    assert await policy.entries() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scope": "all"}, "scope of a grant"),
        ({"ttl_seconds": 0}, "ttl_seconds"),
        ({"ttl_seconds": -1}, "ttl"),
    ],
)
async def test_a_grant_that_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidPolicy, match=said):
        SessionPermissionCache(Inner(Decision.ask())).remember(DELETE, ALLOW, **options)


# A store that fails.


async def test_a_store_that_fails_has_no_grants(caplog: pytest.LogCaptureFixture) -> None:
    store = SlowGrants()
    policy = SessionPermissionCache(Inner(Decision.ask()), store=store)
    await policy.remember(DELETE, ALLOW)
    store.fails = True
    assert await verdict(policy) == "ask"
    assert "grants could not be looked up (ConnectionError); none counts" in caplog.text
    assert "s3cr3t" not in caplog.text
    store.fails = False
    assert await verdict(policy) == "allow"


async def test_a_grant_that_was_not_stored_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    store = SlowGrants()
    store.fails = True
    policy = SessionPermissionCache(Inner(Decision.ask()), store=store)
    with caplog.at_level(logging.ERROR):
        with pytest.raises(ConnectionError):
            await policy.remember(DELETE, ALLOW)
        policy.remember(DELETE, ALLOW)
        assert await verdict(policy) == "ask"
    store.fails = False
    assert await verdict(policy) == "ask"
    assert caplog.text.count("a grant could not be stored (ConnectionError)") == 2


async def test_cancelling_the_wait_does_not_lose_the_grant() -> None:
    store = SlowGrants()
    policy = SessionPermissionCache(Inner(Decision.ask()), store=store)

    async def remember() -> None:
        await policy.remember(DELETE, ALLOW)

    waiting = asyncio.create_task(remember())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await verdict(policy) == "allow"


def test_storing_needs_an_event_loop() -> None:
    policy = SessionPermissionCache(Inner(Decision.ask()), store=SlowGrants())
    with pytest.raises(StoreError, match="only be stored from async code"):
        policy.remember(DELETE, ALLOW)


@pytest.mark.parametrize(
    "change",
    [
        {"decision": {"allowed": True, "requires_approval": True}},
        {"decision": {"allowed": False, "requires_approval": False}},
        {"decision": {"allowed": True}},
        {"scope": "all"},
        {"agent_path": None},
        {"expires_at": 0},
        {"agent_path": ["billing"]},
    ],
)
async def test_a_stored_grant_that_is_none_does_not_count(change: JsonObject) -> None:
    grants = MemoryGrants()
    policy = SessionPermissionCache(Inner(Decision.ask()), store=grants)
    given = await policy.remember(DELETE, ALLOW)
    assert await verdict(policy) == "allow"
    grants.put("default", given.key, {**given.to_json(), **change}, expires_at=None)
    assert await verdict(policy) == "ask"


async def test_a_body_under_another_key_does_not_count() -> None:
    grants = MemoryGrants()
    policy = SessionPermissionCache(Inner(Decision.ask()), store=grants)
    given = await policy.remember(DELETE, ALLOW)
    other = asked_about(args={"id": 6})
    grants.put("default", grant_key(other, "tool"), given.to_json(), expires_at=None)
    assert await verdict(policy, other) == "ask"
