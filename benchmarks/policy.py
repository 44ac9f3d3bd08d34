"""Policies: what 10,000 rules cost against 10."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from askfirst.permissions import PendingAction, StaticPermissionPolicy
from benchmarks.measure import Figure, interleaved

FEW, MANY = 10, 10_000
BUDGET = 5


def figures() -> Iterator[Figure]:
    yield asyncio.run(
        compared("10,000 rules, each for a tool / 10", named, lambda count: f"tool_{count - 1}")
    )
    yield asyncio.run(compared("10,000 rules, none matches / 10", named, lambda count: "other"))
    yield asyncio.run(
        compared("10,000 rules, each a glob / 10", globs, lambda count: f"tool_{count - 1}_read")
    )
    yield asyncio.run(compared("10,000 rules, each for a principal / 10", principals, lambda count: "any"))


def named(number: int) -> dict[str, Any]:
    return {"scope": {"tool": f"tool_{number}", "arg_constraints": [{"path": "cents", "lte": 500}]}}


def globs(number: int) -> dict[str, Any]:
    return {"scope": {"tool": f"tool_{number}_*", "arg_constraints": [{"path": "cents", "lte": 500}]}}


def principals(number: int) -> dict[str, Any]:
    return {"principal": f"user_{number}", "scope": {"arg_constraints": [{"path": "cents", "lte": 500}]}}


async def compared(name: str, rule: Callable[[int], dict[str, Any]], tool: Callable[[int], str]) -> Figure:
    """The last rule of many against the last rule of few, after a rule for all tools that does not match."""
    mine, theirs = await interleaved(
        evaluating(MANY, rule, tool(MANY)), evaluating(FEW, rule, tool(FEW)), rounds=60, per_round=200
    )
    return Figure(name, mine / theirs, BUDGET, note=f"{mine * 1e6:.1f} us against {theirs * 1e6:.1f} us")


def evaluating(count: int, rule: Callable[[int], dict[str, Any]], tool: str) -> Callable[[], Any]:
    night = {"arg_constraints": [{"path": "at", "equals": "night"}]}
    rules = [{"id": "night", "scope": night, "effect": "deny"}]
    rules += [{"id": str(number), "effect": "allow", **rule(number)} for number in range(count)]
    policy = StaticPermissionPolicy(rules)
    action = PendingAction(tool=tool, principal=f"user_{count - 1}", args={"cents": 5, "at": "day"})
    expected = None if tool == "other" else str(count - 1)

    async def evaluate() -> None:
        assert policy.evaluate(action).matched_rule_id == expected

    return evaluate
