"""Asking a policy, failing closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from assent.errors import InvalidPolicy
from assent.permissions.closed import Failed, call_each, failed
from assent.permissions.decision import BatchPolicy, Decision, PendingAction, PermissionPolicy

DEFAULT_TIMEOUT = 10.0
"""How many seconds a policy or a guardrail has to answer."""


async def decide(
    policy: PermissionPolicy | None,
    actions: Sequence[PendingAction],
    timeout: float | None = DEFAULT_TIMEOUT,
) -> list[Decision]:
    """What a policy says about the calls of a message, one decision for each; without a policy, allow.

    It fails closed: a policy that raises, takes longer than ``timeout`` seconds or answers nonsense denies,
    and the reason says so.
    """
    answers = await attempt(policy, actions, timeout)
    return [Decision.deny(each.reason) if isinstance(each, Failed) else each for each in answers]


async def attempt(
    policy: PermissionPolicy | None, actions: Sequence[PendingAction], timeout: float | None
) -> list[Decision | Failed]:
    """Like `decide`, but telling a policy that failed from one that denies."""
    if policy is None:
        return [Decision.allow() for _ in actions]
    if not actions:
        return []
    what = f"the policy ({type(policy).__name__})"
    if not callable(getattr(policy, "evaluate", None)):
        answers: Sequence[Any] = [failed(f"{what} has no evaluate()")] * len(actions)
    elif isinstance(policy, BatchPolicy):
        [answer] = await call_each(what, policy.evaluate_many, [list(actions)], timeout)
        answers = _one_each(what, answer, len(actions))
    else:
        answers = await call_each(what, policy.evaluate, actions, timeout)
    return [as_decision(what, each) for each in answers]


def _one_each(what: str, answer: Any, count: int) -> Sequence[Any]:
    if isinstance(answer, Failed):
        return [answer] * count
    if isinstance(answer, str) or not isinstance(answer, Sequence):
        return [failed(f"{what} answered with {type(answer).__name__} in place of a list")] * count
    answers = cast("Sequence[Any]", answer)
    if len(answers) != count:
        return [failed(f"{what} gave {len(answers)} decisions for {count} calls")] * count
    return answers


def as_decision(what: str, answer: Any) -> Decision | Failed:
    """An answer as a decision, if it is one."""
    if isinstance(answer, Failed):
        return answer
    try:
        return Decision.of(answer)
    except InvalidPolicy:
        return failed(f"{what} answered with {type(answer).__name__} that is no decision")
