"""Policies and guardrails where calls are settled: what they decide, and that nothing loosens it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from kit.deeds import (
    TWO,
    Deeds,
    approve,
    call,
    completed,
    delegate,
    deny,
    edit,
    go_on,
    hitl,
    pending_ids,
    script,
)
from kit.transcripts import results

from askfirst import Agent, AgentSpec, BeforeToolCallResult, Middleware, ToolCallContext, run_agent
from askfirst.agent import gate
from askfirst.errors import InvalidAgent
from askfirst.hitl.testing import ScriptedChannel
from askfirst.messages import AssistantMessage
from askfirst.permissions import (
    Decision,
    PendingAction,
    SessionPermissionCache,
    StaticPermissionPolicy,
    action_guardrail,
    answer_guardrail,
    decide,
)

pytestmark = pytest.mark.anyio

BOMB = {"path": "what", "equals": "bomb"}
Says = Callable[[PendingAction], Any]


class Policy:
    """A policy that says what a function says, and keeps what it was asked."""

    def __init__(self, says: Says) -> None:
        self.says = says
        self.asked: list[PendingAction] = []

    async def evaluate(self, action: PendingAction) -> Any:
        self.asked.append(action)
        return self.says(action)


class Batched(Policy):
    """The same, for all calls of a message at once."""

    def __init__(self, says: Says) -> None:
        super().__init__(says)
        self.trips = 0

    async def evaluate_many(self, actions: Sequence[PendingAction]) -> list[Any]:
        self.trips += 1
        return [await self.evaluate(action) for action in actions]


def allows(_: PendingAction) -> Decision:
    return Decision.allow()


def asks(_: PendingAction) -> Decision:
    return Decision.ask("policy asks")


def denies(_: PendingAction) -> Decision:
    return Decision.deny("policy denies")


def spec_of(deeds: Deeds, policy: Any, *turns: Any, **options: Any) -> AgentSpec:
    tools = [deeds.tool("mail", toolset="post"), deeds.asks("pay")]
    return AgentSpec("agent", script(*(turns or (TWO, "done"))), tools=tools, policy=policy, **options)


# What a policy decides.


async def test_a_rule_allows_denies_or_asks_and_is_named() -> None:
    deeds = Deeds()
    rules = [
        {"id": "no-bombs", "scope": {"tool": "mail", "arg_constraints": [BOMB]}, "effect": "deny"},
        {
            "id": "maria-asks",
            "principal": "maria",
            "scope": {"toolset": "post"},
            "effect": "require_approval",
        },
    ]
    policy = StaticPermissionPolicy(rules, Decision.allow())
    calls = [call("c1", "mail", "bomb"), call("c2", "mail", "rose")]
    spec = spec_of(deeds, policy, calls, "done")
    assert completed(await run_agent(spec, "go", principal="bob")).keys() == {"c1", "c2"}
    assert deeds.done == ["mail rose"]

    paused = await run_agent(spec, "go", principal="maria")
    (approval,) = paused.pending_approvals
    assert (approval.id, approval.matched_rule_id, approval.principal) == ("c2", "maria-asks", "maria")
    assert approval.reason
    done = await go_on(spec, paused, approve("c2"))
    assert deeds.done == ["mail rose"] * 2
    refused = results(done.messages)["c1"]
    assert refused.is_error
    trace = hitl(done, "c1")
    assert (trace["decision"], trace["matched_rule_id"]) == ("policy_deny", "no-bombs")
    assert trace["reason"] in refused.text


async def test_the_action_says_who_what_and_where() -> None:
    policy = Policy(allows)
    await run_agent(spec_of(Deeds(), policy, [call("c1", "mail", "a")], "done"), "go", principal="maria")
    (action,) = policy.asked
    assert (action.principal, action.toolset, action.tool) == ("maria", "post", "mail")
    assert (action.args, action.tool_call_id, action.agent_path) == ({"what": "a"}, "c1", ("agent",))


async def test_a_message_is_one_round_trip() -> None:
    policy = Batched(allows)
    await run_agent(spec_of(Deeds(), policy), "go")
    assert policy.trips == 1
    assert [action.tool_call_id for action in policy.asked] == ["c1", "c2"]


async def test_a_tool_that_requires_approval_asks_whatever_the_policy_allows() -> None:
    deeds = Deeds()
    spec = spec_of(deeds, Policy(allows), [call("c1", "pay", "5")], "done")
    assert pending_ids(await run_agent(spec, "go")) == ["c1"]
    denied = spec_of(deeds, Policy(denies), [call("c1", "pay", "5")], "done")
    result = await run_agent(denied, "go")  # and no person is asked about what is denied anyway
    assert hitl(result, "c1")["decision"] == "policy_deny"
    assert deeds.done == []


async def test_what_a_policy_asks_is_asked_through_the_channel() -> None:
    deeds = Deeds()
    policy = StaticPermissionPolicy([{"id": "r1", "effect": "require_approval"}])
    channel = ScriptedChannel([{"decision": "approve"}, {"decision": "deny", "reason": "no"}])
    spec = spec_of(deeds, policy)
    agent = Agent.from_spec(spec, channel=channel, principal="maria")
    result = await agent.prompt("go")
    assert result.status == "completed"
    assert deeds.done == ["mail a"]
    details = channel.history[0].payload.details  # type: ignore[union-attr]
    assert details is not None
    assert (details["matched_rule_id"], details["principal"]) == ("r1", "maria")


def test_a_policy_without_evaluate_is_no_policy() -> None:
    with pytest.raises(InvalidAgent, match="has no evaluate"):
        AgentSpec("a", script("done"), policy="allow")  # type: ignore[arg-type]


# Whatever goes wrong denies.


def _raises(_: PendingAction) -> Decision:
    raise LookupError("the secret is 42")


@pytest.mark.parametrize("kind", [Policy, Batched])
@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (_raises, "raised LookupError"),
        (lambda _: None, "no decision"),
        (lambda _: "yes", "no decision"),
        (lambda _: True, "no decision"),
        (lambda _: {"allowed": "yes", "requires_approval": False}, "no decision"),
    ],
)
async def test_a_policy_that_fails_denies(kind: type[Policy], says: Says, reason: str) -> None:
    deeds = Deeds()
    result = await run_agent(spec_of(deeds, kind(says)), "go")
    assert deeds.done == []
    for call_id in ("c1", "c2"):
        assert hitl(result, call_id)["decision"] == "policy_deny"
        assert reason in hitl(result, call_id)["reason"]
        assert "42" not in str(results(result.messages)[call_id])


async def test_a_policy_that_answers_for_too_few_denies_all() -> None:
    class Short(Batched):
        async def evaluate_many(self, actions: Sequence[PendingAction]) -> list[Any]:
            return [Decision.allow()]

    deeds = Deeds()
    result = await run_agent(spec_of(deeds, Short(allows)), "go")
    assert deeds.done == []
    assert "1 decisions for 2 calls" in hitl(result, "c2")["reason"]


async def test_a_policy_that_does_not_answer_in_time_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Policy):
        async def evaluate(self, action: PendingAction) -> Any:
            await asyncio.Event().wait()

    monkeypatch.setattr(gate, "decide", partial(decide, timeout=0))
    deeds = Deeds()
    result = await run_agent(spec_of(deeds, Slow(allows)), "go")
    assert deeds.done == []
    assert "did not answer within" in hitl(result, "c1")["reason"]


async def test_a_guardrail_that_fails_denies() -> None:
    for guardrail, reason in ((_raises, "raised LookupError"), (lambda _: "fine", "no decision")):
        deeds = Deeds()
        result = await run_agent(spec_of(deeds, None, guardrails=[guardrail]), "go")
        assert deeds.done == []
        assert reason in hitl(result, "c1")["reason"]


# Guardrails can only tighten.


@pytest.mark.parametrize("policy", [allows, asks, denies])
@pytest.mark.parametrize("guard", [lambda _: None, allows, asks, denies])
async def test_the_stricter_counts(policy: Says, guard: Says) -> None:
    deeds = Deeds()
    strictness = [None, allows, asks, denies]
    level = max(strictness.index(policy), strictness.index(guard) if guard in strictness else 0)
    spec = spec_of(
        deeds, Policy(policy), [call("c1", "mail", "a")], "done", guardrails=[action_guardrail(guard)]
    )
    result = await run_agent(spec, "go")
    assert result.status == ("paused" if strictness[level] is asks else "completed")
    assert deeds.done == (["mail a"] if strictness[level] is allows else [])
    if strictness[level] is denies:
        assert hitl(result, "c1") == {"decision": "policy_deny", "reason": "policy denies"}


async def test_guardrails_look_at_each_call() -> None:
    def no_b(action: PendingAction) -> Decision | None:
        return Decision.deny("not to b") if action.args["what"] == "b" else None

    deeds = Deeds()
    result = await run_agent(spec_of(deeds, None, guardrails=[no_b]), "go")
    assert deeds.done == ["mail a"]
    assert hitl(result, "c2")["reason"] == "not to b"


async def test_a_guardrail_on_answers_counts_for_all_its_calls() -> None:
    def polite(message: AssistantMessage) -> Decision | None:
        return Decision.ask("rude") if "rude" in message.text else None

    deeds = Deeds()
    guardrails = [answer_guardrail(polite)]
    rude = spec_of(deeds, None, ["rude words", *TWO], "done", guardrails=guardrails)
    paused = await run_agent(rude, "go")
    assert pending_ids(paused) == ["c1", "c2"]
    assert {approval.reason for approval in paused.pending_approvals} == {"rude"}
    kind = spec_of(deeds, None, ["kind words", *TWO], "done", guardrails=guardrails)
    assert (await run_agent(kind, "go")).status == "completed"


# Decided again, and what is final.


async def test_a_call_is_judged_again_when_it_is_resumed() -> None:
    deeds = Deeds()
    policy = Policy(asks)
    spec = spec_of(deeds, policy)
    paused = await run_agent(spec, "go")
    policy.says = lambda action: denies(action) if action.args["what"] == "a" else allows(action)
    result = await go_on(spec, paused, approve("c1", "c2"))
    assert deeds.done == ["mail b"]
    assert hitl(result, "c1") == {"decision": "policy_deny", "reason": "policy denies"}


async def test_a_policy_that_allows_by_now_needs_no_answer() -> None:
    deeds = Deeds()
    policy = Policy(asks)
    spec = spec_of(deeds, policy)
    paused = await run_agent(spec, "go")
    policy.says = allows
    assert (await go_on(spec, paused, [])).status == "completed"
    assert sorted(deeds.done) == ["mail a", "mail b"]


@pytest.mark.parametrize("later", [allows, asks, denies])
async def test_a_rejection_is_final_whatever_the_policy_says_later(later: Says) -> None:
    deeds = Deeds()
    policy = Policy(asks)
    spec = spec_of(deeds, policy)
    paused = await go_on(spec, await run_agent(spec, "go"), deny("c1", reason="never"))
    assert pending_ids(paused) == ["c2"]
    policy.says = later
    result = await go_on(spec, paused, approve("c2"))
    assert completed(result)
    assert "mail a" not in deeds.done
    assert (hitl(result, "c1")["decision"], hitl(result, "c1")["reason"]) == ("human_deny", "never")


async def test_a_rejection_is_final_when_the_tool_needs_no_approval_any_more() -> None:
    deeds = Deeds()
    before = AgentSpec("agent", script(TWO, "done"), tools=[deeds.asks("mail")])
    after = AgentSpec("agent", script(TWO, "done"), tools=[deeds.tool("mail")])
    paused = await go_on(before, await run_agent(before, "go"), deny("c1"))
    assert completed(await go_on(after, paused, []))
    assert deeds.done == ["mail b"]


async def test_an_edit_is_put_to_the_policy() -> None:
    deeds = Deeds()
    policy = Policy(lambda action: denies(action) if action.args["what"] == "z" else asks(action))
    spec = spec_of(deeds, policy)
    paused = await run_agent(spec, "go")
    result = await go_on(spec, paused, [*edit("c1", what="z"), *edit("c2", what="y")])
    assert deeds.done == ["mail y"]  # what the person wrote is what the person approved: asked once
    assert hitl(result, "c1")["decision"] == "policy_deny"
    assert hitl(result, "c1")["reason"] == "policy denies"


async def test_what_middleware_changes_is_put_to_the_policy() -> None:
    class Rewrites(Middleware):
        async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult:
            return BeforeToolCallResult(edited_args={"what": "z"})

    for says, done in ((denies, []), (asks, []), (allows, ["mail z", "mail z"])):
        deeds = Deeds()
        policy = Policy(
            lambda action, says=says: says(action) if action.args["what"] == "z" else allows(action)
        )
        result = await run_agent(spec_of(deeds, policy, middleware=[Rewrites()]), "go")
        assert deeds.done == done
        assert result.status == ("paused" if says is asks else "completed")


# Subagents.


def family(deeds: Deeds, parent: Any, child: Any) -> AgentSpec:
    worker = AgentSpec(
        "worker",
        script([call("c1", "mail", "a")], "sent"),
        tools=[deeds.tool("mail", toolset="post")],
        policy=child,
    )
    return AgentSpec("boss", script([delegate("w", "worker")], "done"), policy=parent, subagents=[worker])


async def test_a_child_without_a_policy_has_its_callers() -> None:
    deeds = Deeds()
    policy = Policy(lambda action: asks(action) if action.tool == "mail" else allows(action))
    paused = await run_agent(family(deeds, policy, None), "go", principal="maria")
    assert pending_ids(paused) == ["w/c1"]
    assert [(action.tool, action.agent_path, action.principal) for action in policy.asked] == [
        ("worker", ("boss",), "maria"),
        ("mail", ("boss", "worker"), "maria"),
    ]
    assert paused.pending_approvals[0].reason == "policy asks"


async def test_a_child_with_a_policy_has_its_own() -> None:
    deeds = Deeds()
    parent, child = Policy(allows), Policy(denies)
    await run_agent(family(deeds, parent, child), "go")
    assert [action.tool for action in parent.asked] == ["worker"]
    assert [action.tool for action in child.asked] == ["mail"]
    assert deeds.done == []


async def test_calling_a_subagent_is_a_call_like_any_other() -> None:
    deeds = Deeds()
    asking = family(deeds, Policy(asks), Policy(allows))
    paused = await run_agent(asking, "go")
    assert pending_ids(paused) == ["w"]
    assert asking.subagents[0].model.requests == []  # type: ignore[union-attr]
    assert completed(await go_on(asking, paused, approve("w"))) == {"w": "sent"}
    assert completed(await run_agent(family(deeds, Policy(denies), None), "go"))
    assert deeds.done == ["mail a"]


@pytest.mark.parametrize("inherit", [False, True])
async def test_a_grant_counts_for_subagents_only_if_that_is_said(inherit: bool) -> None:
    deeds = Deeds()
    inner = StaticPermissionPolicy(
        [{"id": "mail", "scope": {"tool": "mail"}, "effect": "require_approval"}], Decision.allow()
    )
    policy = SessionPermissionCache(inner)
    spec = family(deeds, policy, None)
    given = PendingAction(tool="mail", toolset="post", args={"what": "a"}, agent_path=("boss",))
    await policy.remember(given, Decision.allow(), scope="tool", inherit=inherit, by="ann")
    result = await run_agent(spec, "go")
    assert result.status == ("completed" if inherit else "paused")
    assert deeds.done == (["mail a"] if inherit else [])
