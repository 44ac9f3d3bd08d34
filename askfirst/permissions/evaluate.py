"""Asking a policy or a guardrail about an action; a failure denies (fail closed)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from askfirst.errors import InvalidPolicy
from askfirst.permissions.decision import BatchPolicy, Decision, PendingAction, PermissionPolicy

# Calling a policy or a guardrail so that a failure is reported, and never counts as an allow (fail closed).


logger = logging.getLogger("askfirst.permissions")


@dataclass(frozen=True, slots=True)
class Failed:
    """A policy or guardrail gave no answer. ``reason`` says what happened, and quotes no argument."""

    reason: str


async def call_each(
    what: str, function: Callable[[Any], Any], given: Sequence[Any], timeout: float | None
) -> list[Any | Failed]:
    """Call a function, sync or async, for each of the things given, all at once.

    One that raises, or does not answer within ``timeout`` seconds, gives `Failed`. Cancellation and control
    signals pass through.
    """
    is_async = inspect.iscoroutinefunction(function)
    tasks = [asyncio.create_task(_call(what, function, each, is_async)) for each in given]
    try:
        # Not asyncio.timeout: it would wait for a policy that swallows the cancellation.
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()  # only cancellation and control signals are left to raise
        return [
            task.result() if task.done() else failed(f"{what} did not answer within {timeout:g} s")
            for task in tasks
        ]
    finally:
        for task in tasks:
            task.cancel()


async def _call(what: str, function: Callable[[Any], Any], given: Any, is_async: bool) -> Any | Failed:
    try:
        returned = function(given) if is_async else await asyncio.to_thread(_in_thread, function, given)
        return await returned if inspect.isawaitable(returned) else returned
    except Exception as error:
        return failed(f"{what} raised {type(error).__name__}", error)


def _in_thread(function: Callable[[Any], Any], given: Any) -> Any:
    try:
        return function(given)
    except StopIteration as error:  # a future cannot carry StopIteration: its waiter would hang
        raise RuntimeError("StopIteration") from error


def failed(reason: str, error: BaseException | None = None) -> Failed:
    """Log what failed and where, but not the error's text, which may quote an argument."""
    where = "".join(traceback.format_tb(error.__traceback__)) if error else ""
    logger.error("%s; this counts as a deny\n%s" if where else "%s; this counts as a deny%s", reason, where)
    return Failed(reason)


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
    """As `decide`, but a failed policy gives `Failed` instead of a deny."""
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
