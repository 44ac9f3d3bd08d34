"""Asking a policy and guardrails: whatever goes wrong denies."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.errors import HitlDetached
from askfirst.messages import AssistantMessage
from askfirst.permissions import (
    Decision,
    PendingAction,
    action_guardrail,
    answer_guardrail,
    decide,
    judge_answer,
    tighten,
)

pytestmark = pytest.mark.anyio

PAY = PendingAction(tool="pay", args={"to": "s3cr3t"})
NEVER = 0.01  # seconds that a policy which never answers is given


class Policy:
    """A policy that answers by a function of the action."""

    def __init__(self, answer: Any) -> None:
        self.evaluate = answer


class Batch:
    def __init__(self, answer: Any) -> None:
        self.evaluate_many = answer

    def evaluate(self, action: PendingAction) -> Decision:
        raise AssertionError("a whole message is asked about at once")


def raising(action: Any) -> Any:
    raise KeyError(PAY.args["to"])


async def raising_later(action: Any) -> Any:
    raise KeyError(PAY.args["to"])


async def never(action: Any) -> Any:
    await asyncio.Event().wait()


async def never_and_stubborn(action: Any) -> Any:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if released.is_set():
                raise


released = threading.Event()


def stopping(action: Any) -> Any:
    raise StopIteration


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(raising), "the policy (Policy) raised KeyError"),
        (Policy(raising_later), "the policy (Policy) raised KeyError"),
        (Policy(stopping), "the policy (Policy) raised RuntimeError"),
        (Policy(never), "the policy (Policy) did not answer within 0.01 s"),
        (Policy(lambda action: None), "the policy (Policy) answered with NoneType that is no decision"),
        (Policy(lambda action: True), "the policy (Policy) answered with bool that is no decision"),
        (Policy(lambda action: "allow"), "the policy (Policy) answered with str that is no decision"),
        (Policy(lambda action: {"allowed": "yes", "requires_approval": False}), "answered with dict"),
        (Policy(lambda action: {"allowed": True}), "answered with dict"),
        (Policy(lambda action: Decision), "answered with type"),
        (Policy(lambda: Decision.allow()), "the policy (Policy) raised TypeError"),
        (Policy(None), "the policy (Policy) has no evaluate()"),
        (object(), "the policy (object) has no evaluate()"),
        (Batch(raising), "the policy (Batch) raised KeyError"),
        (Batch(never), "the policy (Batch) did not answer within 0.01 s"),
        (Batch(lambda actions: []), "the policy (Batch) gave 0 decisions for 2 calls"),
        (Batch(lambda actions: [Decision.allow()] * 3), "the policy (Batch) gave 3 decisions for 2 calls"),
        (Batch(lambda actions: Decision.allow()), "answered with Decision in place of a list"),
        (Batch(lambda actions: "ok"), "answered with str in place of a list"),
        (Batch(lambda actions: [True, True]), "answered with bool that is no decision"),
        (Batch(None), "the policy (Batch) raised AssertionError"),
    ],
)
async def test_whatever_goes_wrong_denies(policy: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "askfirst.permissions"):
        decisions = await decide(policy, [PAY, PAY], NEVER if "within" in said else 10)
    assert [each.verdict for each in decisions] == ["deny", "deny"]
    assert all(said in (each.reason or "") for each in decisions)
    assert said in caplog.text
    assert "s3cr3t" not in caplog.text


async def test_one_that_fails_does_not_take_the_others_along() -> None:
    def evaluate(action: PendingAction) -> Decision:
        return raising(action) if action.tool == "pay" else Decision.allow()

    decisions = await decide(Policy(evaluate), [PAY, PendingAction(tool="read")])
    assert [each.verdict for each in decisions] == ["deny", "allow"]


async def test_a_policy_that_resists_cancellation_is_not_waited_for() -> None:
    released.clear()
    try:
        [decision] = await decide(Policy(never_and_stubborn), [PAY], NEVER)
    finally:
        released.set()
    assert decision.verdict == "deny"


@pytest.mark.parametrize("signal", [HitlDetached, asyncio.CancelledError])
@pytest.mark.parametrize("make", [Policy, Batch])
async def test_control_signals_pass_through(signal: type[BaseException], make: Any) -> None:
    async def evaluate(action: Any) -> Decision:
        raise signal

    with pytest.raises(signal):
        await decide(make(evaluate), [PAY])


async def test_a_control_signal_does_not_wait_for_the_other_calls() -> None:
    async def evaluate(action: PendingAction) -> Decision:
        if action.tool == "pay":
            raise HitlDetached
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(HitlDetached):
        await decide(Policy(evaluate), [PendingAction(tool="read"), PAY], timeout=None)


async def test_a_control_signal_passes_from_a_thread() -> None:
    def evaluate(action: PendingAction) -> Decision:
        raise HitlDetached

    with pytest.raises(HitlDetached):
        await decide(Policy(evaluate), [PAY])


async def test_cancelling_the_question_cancels_the_policy() -> None:
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def evaluate(action: PendingAction) -> Decision:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    asking = asyncio.create_task(decide(Policy(evaluate), [PAY]))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await ended.wait()


async def test_sync_policies_run_in_a_thread_and_async_ones_at_once() -> None:
    threads: list[int] = []
    together = asyncio.Barrier(2)

    def in_thread(action: PendingAction) -> Decision:
        threads.append(threading.get_ident())
        return Decision.allow()

    async def at_once(action: PendingAction) -> Decision:
        await together.wait()
        return Decision.allow()

    assert (await decide(Policy(in_thread), [PAY]))[0].allowed
    assert threading.get_ident() not in threads
    assert [each.allowed for each in await decide(Policy(at_once), [PAY, PAY])] == [True, True]


async def test_a_plain_function_may_return_an_awaitable() -> None:
    async def later() -> Decision:
        return Decision.allow()

    [decision] = await decide(Policy(lambda action: later()), [PAY])
    assert decision == Decision.allow()


async def test_dicts_are_decisions_too() -> None:
    [decision] = await decide(Policy(lambda action: {"allowed": False, "requires_approval": True}), [PAY])
    assert decision.verdict == "ask"


async def test_no_policy_allows_and_no_action_asks_nobody() -> None:
    assert await decide(None, [PAY, PAY]) == [Decision.allow()] * 2
    assert await decide(Policy(raising), []) == []


@pytest.mark.parametrize(
    ("allowed", "requires_approval", "verdict"),
    [(True, False, "allow"), (False, False, "deny"), (True, True, "ask"), (False, True, "ask")],
)
def test_how_a_decision_is_read(allowed: bool, requires_approval: bool, verdict: str) -> None:
    assert Decision(allowed, requires_approval).verdict == verdict


def test_an_ask_is_not_allowed_for_who_looks_no_further() -> None:
    assert not Decision.ask().allowed


# Guardrails.


async def test_guardrails_see_what_is_not_denied_yet() -> None:
    seen: list[str] = []

    def look(action: PendingAction) -> None:
        seen.append(action.tool)

    actions = [PendingAction(tool=name) for name in "abc"]
    decisions = [Decision.allow(), Decision.deny("no"), Decision.ask()]
    assert await tighten(decisions, actions, [look, action_guardrail(look)]) == decisions
    assert sorted(seen) == ["a", "a", "c", "c"]


async def test_a_guardrail_denies_or_asks() -> None:
    @action_guardrail
    async def not_at_night(action: PendingAction) -> Decision | None:
        return Decision.ask("it is late") if action.tool == "pay" else None

    def never_delete(action: PendingAction) -> Decision | None:
        return Decision.deny("not here") if action.tool == "delete" else None

    actions = [PendingAction(tool=name) for name in ("pay", "delete", "read")]
    decisions = await tighten([Decision.allow()] * 3, actions, [not_at_night, never_delete])
    assert decisions == [Decision.ask("it is late"), Decision.deny("not here"), Decision.allow()]


async def test_what_is_no_stricter_changes_nothing() -> None:
    decision = Decision(False, True, matched_rule_id="r", reason="first")
    assert await tighten([decision], [PAY], [lambda action: Decision.ask("second")]) == [decision]


@pytest.mark.parametrize("broken", [raising, raising_later, never, lambda action: True, lambda action: "no"])
async def test_a_guardrail_that_fails_denies(broken: Any) -> None:
    [decision] = await tighten([Decision.allow()], [PAY], [broken], NEVER if broken is never else 10)
    assert decision.verdict == "deny"
    assert (decision.reason or "").startswith(f"the guardrail {broken.__name__} ")
    judged = await judge_answer(
        AssistantMessage("hi"), [answer_guardrail(broken)], NEVER if broken is never else 10
    )
    assert judged is not None
    assert judged.verdict == "deny"


VERDICTS = ["allow", "ask", "deny"]
DECISIONS = st.builds(Decision, st.booleans(), st.booleans())
OBJECTIONS = st.none() | DECISIONS | st.sampled_from([KeyError(), 5])


def saying(objection: Any) -> Any:
    async def guardrail(action: Any) -> Any:
        if isinstance(objection, Exception):
            raise objection
        return objection

    return guardrail


@given(st.lists(DECISIONS, max_size=3), st.lists(OBJECTIONS, max_size=3))
def test_tighten_never_loosens(decisions: list[Decision], objections: Sequence[Any]) -> None:
    actions = [PAY] * len(decisions)
    tightened = asyncio.run(tighten(decisions, actions, [saying(each) for each in objections]))
    strictest = max(
        (
            2 if isinstance(each, Exception | int) else VERDICTS.index(each.verdict)
            for each in objections
            if each
        ),
        default=0,
    )
    for before, after in zip(decisions, tightened, strict=True):
        assert VERDICTS.index(after.verdict) == max(VERDICTS.index(before.verdict), strictest)


async def test_an_answer_is_judged_by_its_own_guardrails() -> None:
    @answer_guardrail
    def no_names(message: AssistantMessage) -> Decision | None:
        return Decision.ask("it names someone") if "Ada" in message.text else None

    @answer_guardrail
    async def no_links(message: AssistantMessage) -> Decision | None:
        return Decision.deny("it has a link") if "http" in message.text else None

    guardrails = [no_names, raising, no_links]  # a bare function looks at calls only
    assert await judge_answer(AssistantMessage("Hello."), guardrails) is None
    assert await judge_answer(AssistantMessage("Ada"), guardrails) == Decision.ask("it names someone")
    assert await judge_answer(AssistantMessage("Ada http"), guardrails) == Decision.deny("it has a link")
    assert await tighten([Decision.allow()], [PAY], [no_names, no_links]) == [Decision.allow()]
