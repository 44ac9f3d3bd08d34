"""Why a policy decides as it does, in words that may be logged: no value of an argument is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assent.permissions.decision import Decision, PendingAction, Verdict
from assent.permissions.index import Placed
from assent.permissions.rules import Rule


@dataclass(frozen=True, slots=True)
class PassedRule:
    """A rule that did not match, and why."""

    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a policy came to its decision.

    ``rule`` decided (None: no rule matched, and the default did) and ``because`` says why; ``passed`` are
    the rules before it. As text it has one line for each.
    """

    decision: Decision
    rule: Rule | None
    because: str
    passed: tuple[PassedRule, ...]

    def __str__(self) -> str:
        lines = [f"rule {each.rule.id!r} does not match: {each.why}" for each in self.passed]
        return "\n".join([*lines, self.because])


_SAYS: dict[Verdict, str] = {"allow": "allows it", "ask": "requires approval", "deny": "denies it"}


def because(rule: Rule, verdict: Verdict, args: Mapping[str, Any], holds: bool | None) -> str:
    """What a rule says, and why it says so where that is not plain."""
    said = f"rule {rule.id!r} {_SAYS[verdict]}"
    if holds is None:
        return f"{said}: {_untold(rule, args)}"
    if rule.effect.endswith("_unless_matches"):
        return f"{said}: its constraints {'match' if holds else 'do not match'}"
    return said


def why_not(placed: Placed, action: PendingAction) -> str:
    """Why a rule does not match a call."""
    rule = placed.rule
    if not placed.tool(action.tool):
        return f"it is about tool {rule.scope.tool!r}, and this is {action.tool!r}"
    if not placed.toolset(action.toolset or ""):
        this = f"this is {action.toolset!r}" if action.toolset else "this has none"
        return f"it is about toolset {rule.scope.toolset!r}, and {this}"
    if not placed.principal(action.principal):
        return f"it is about principal {rule.principal!r}, and this is {action.principal!r}"
    failing = [each for each in rule.scope.arg_constraints if each.holds(action.args) is False]
    if failing:
        return "; ".join(f"{each.path!r} fails the test {each.test!r}" for each in failing)
    return _untold(rule, action.args)


def _untold(rule: Rule, args: Mapping[str, Any]) -> str:
    untold = [each for each in rule.scope.arg_constraints if each.holds(args) is None]
    return "; ".join(
        f"{each.path!r} is absent or nothing that {each.test!r} can be tested on" for each in untold
    )
