"""Rules: whom and what they are about, and what they say about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from assent.errors import InvalidPolicy
from assent.permissions.constraints import ArgConstraint
from assent.permissions.decision import Verdict
from assent.requests import approval_seconds

Effect = Literal["allow", "deny", "require_approval", "allow_unless_matches", "deny_unless_matches"]
"""What a rule does. The page on permissions has a table of what each makes of its constraints."""

EFFECTS: tuple[Effect, ...] = get_args(Effect)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which calls a rule is about, by toolset, tool and arguments.

    Names match exactly, or as a glob if they contain ``*``, ``?`` or ``[``. A call without a toolset is only
    matched by ``"*"``. Constraints may be given as dicts; all of them have to hold.
    """

    toolset: str = "*"
    tool: str = "*"
    arg_constraints: Sequence[ArgConstraint] = ()

    def __post_init__(self) -> None:
        problems = [*name_problems("toolset", self.toolset), *name_problems("tool", self.tool)]
        if not isinstance(self.arg_constraints, list | tuple) or not all(
            isinstance(each, ArgConstraint) for each in self.arg_constraints
        ):
            problems.append("arg_constraints is a list of ArgConstraint")
        if problems:
            raise InvalidPolicy(problems)
        object.__setattr__(self, "arg_constraints", tuple(self.arg_constraints))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a policy: ``Rule(id="small", scope=Scope(tool="refund"), effect="require_approval")``.

    The first rule of a policy that matches a call decides. ``approval_timeout`` goes with ``require_approval``: how
    long people have, in seconds or as a text such as ``"24h"``; after that the call is denied. Raises `InvalidPolicy`
    if it makes no sense.
    """

    id: str
    principal: str = "*"
    scope: Scope = field(default_factory=Scope)
    effect: Effect
    approval_timeout: float | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scope, Scope):
            raise InvalidPolicy(["scope is a Scope"])
        problems = [*name_problems("id", self.id), *name_problems("principal", self.principal)]
        problems += effect_problems(self.effect, bool(self.scope.arg_constraints))
        problems += timeout_problems(self.approval_timeout, self.effect)
        if problems:
            raise InvalidPolicy(problems)
        object.__setattr__(self, "approval_timeout", approval_seconds(self.approval_timeout))


def timeout_problems(timeout: Any, effect: Any) -> list[str]:
    """What is wrong with how long people have, in sentences."""
    if timeout is None:
        return []
    if effect != "require_approval":
        return ["approval_timeout goes with the effect require_approval: nobody is asked by another one"]
    try:
        approval_seconds(timeout)
    except ValueError as error:
        return [str(error)]
    return []


def name_problems(what: str, value: Any) -> list[str]:
    """What is wrong with a name, in sentences."""
    if isinstance(value, str) and value:
        return []
    return [f"{what} is text and not empty" + ("" if value == "" else f", not {type(value).__name__}")]


def effect_problems(effect: Any, has_constraints: bool) -> list[str]:
    """What is wrong with an effect, in sentences."""
    if not isinstance(effect, str) or effect not in EFFECTS:
        shown = repr(effect) if isinstance(effect, str) else type(effect).__name__
        return [f"effect is one of {', '.join(EFFECTS)}, not {shown}"]
    if effect.endswith("_unless_matches") and not has_constraints:
        return [f"{effect} needs arg_constraints that could match"]
    return []


def verdict_of(effect: Effect, holds: bool | None) -> Verdict | None:
    """What a rule says once its constraints are told (None: they cannot be), or None if it does not match.

    What cannot be told never makes a rule allow, and never keeps it from denying or asking.
    """
    match effect:
        case "allow":
            return "allow" if holds is True else None
        case "deny":
            return None if holds is False else "deny"
        case "require_approval":
            return None if holds is False else "ask"
        case "allow_unless_matches":
            return "allow" if holds is False else "deny"
        case "deny_unless_matches":
            return "allow" if holds is True else "deny"
