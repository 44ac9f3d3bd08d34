"""Middleware that asks a person, through a channel, before a tool runs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from askfirst.agent.spec import BeforeToolCallResult, Middleware, ToolCallContext
from askfirst.agent.tools import json_object
from askfirst.agent.verdicts import approve_trace, denial, refusal_of
from askfirst.channels import DEFAULT, HitlChannel
from askfirst.errors import HitlCancelled, HitlError, HitlTimedOut
from askfirst.hitl.inputs import checked_seconds
from askfirst.messages import JsonObject


@dataclass(frozen=True, slots=True)
class Approve:
    """Let the call run without asking anybody."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Deny the call; the model is told the reason."""

    reason: str = "denied by policy"


@dataclass(frozen=True, slots=True)
class AskUser:
    """Ask a person. ``details`` are shown along with the call; without ``timeout_seconds`` the channel's
    own time-out holds, None switches it off."""

    timeout_seconds: float | None = DEFAULT
    details: Mapping[str, Any] | None = None


_T = TypeVar("_T")
_Details = Mapping[str, Any] | None

ApprovalDecision = Approve | Deny | AskUser
ApprovalPolicy = Callable[[ToolCallContext], ApprovalDecision | Awaitable[ApprovalDecision]]


class ApprovalPolicyMiddleware(Middleware):
    """A function decides on each call: let it run, deny it, or ask a person through the channel.

    If the function raises, or returns anything else, the call is denied.
    """

    def __init__(self, channel: HitlChannel, policy: ApprovalPolicy) -> None:
        _check_callable("policy", policy)
        self._channel = channel
        self._policy = policy

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
        """Decide on a call."""
        decision = await _awaited(self._policy(ctx))
        match decision:
            case Approve():
                return None
            case Deny(reason):
                trace: JsonObject = {"decision": "policy_deny", "reason": reason}
                return BeforeToolCallResult(block=True, reason=reason, hitl_trace=trace)
            case AskUser():
                return await self._ask(ctx, decision)
            case _:
                raise TypeError(f"the policy returned {decision!r}, not Approve, Deny or AskUser")

    async def _ask(self, ctx: ToolCallContext, ask: AskUser) -> BeforeToolCallResult:
        call, args = ctx.tool_call, json_object(ctx.args)
        try:
            answer = await self._channel.approve(
                call.name, call.id, args, details=ask.details, timeout=ask.timeout_seconds
            )
        except (HitlTimedOut, HitlCancelled) as signal:
            why, trace = refusal_of(call.name, signal)
            return BeforeToolCallResult(block=True, reason=why, hitl_trace=trace)
        trace = approve_trace(ctx.tool, ctx.args, answer)
        if answer.decision == "deny":
            why = denial(call.name, answer.reason)
            return BeforeToolCallResult(block=True, reason=why, hitl_trace=trace)
        return BeforeToolCallResult(edited_args=answer.edited_args, hitl_trace=trace)


class ConfirmToolCallMiddleware(ApprovalPolicyMiddleware):
    """Asks a person before tools run: all tools, those in a set of names, or those that a predicate picks.

    ``details_fn`` returns the details to show with a call. Like the predicate, it may be async.
    """

    def __init__(
        self,
        channel: HitlChannel,
        require_confirm: Collection[str] | Callable[[ToolCallContext], bool | Awaitable[bool]] | None = None,
        *,
        timeout_seconds: float | None = DEFAULT,
        details_fn: Callable[[ToolCallContext], _Details | Awaitable[_Details]] | None = None,
    ) -> None:
        picks = require_confirm if callable(require_confirm) else None
        names = None if picks is not None else _names(require_confirm)
        if details_fn is not None:
            _check_callable("details_fn", details_fn)
        if timeout_seconds is not DEFAULT:
            checked_seconds(timeout_seconds)

        async def policy(ctx: ToolCallContext) -> ApprovalDecision:
            if picks is not None:
                asked = await _awaited(picks(ctx))
            else:
                asked = names is None or ctx.tool_call.name in names
            if not asked:
                return Approve()
            details = None if details_fn is None else await _awaited(details_fn(ctx))
            return AskUser(timeout_seconds, details)

        super().__init__(channel, policy)


def _check_callable(name: str, given: Any) -> None:
    """Raise now if a value is not callable: later it would deny every call."""
    if not callable(given):
        raise HitlError(f"{name} is a function of the call, not {given!r}")


def _names(given: Any) -> frozenset[str] | None:
    """The tool names as a set.

    They are copied: an iterator would be empty at the second call, which would then run without asking.
    """
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise HitlError(
            f"require_confirm is a set of tool names, a function of the call, or None; not {given!r}"
        )
    names = frozenset(cast("Iterable[Any]", given))
    for name in names:
        if not isinstance(name, str):
            raise HitlError(f"require_confirm has to have names of tools, not {name!r}")
    return names


async def _awaited(value: _T | Awaitable[_T]) -> _T:
    """The result of a function that may be async."""
    return cast(_T, await value if inspect.isawaitable(value) else value)
