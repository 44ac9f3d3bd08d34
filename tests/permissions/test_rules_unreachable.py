"""Rules that can never be reached: a warning, and never a false one."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.permissions import PendingAction, PolicyWarning, StaticPermissionPolicy, load_rules
from askfirst.permissions.policy_file import as_rules, unreachable

SMALL = {"path": "cents", "lte": 5}
EURO = {"path": "currency", "equals": "EUR"}


def rule(id: str, effect: str, tool: str = "*", *constraints: Any, **fields: Any) -> dict[str, Any]:
    scope = {"tool": tool, "toolset": fields.pop("toolset", "*"), "arg_constraints": list(constraints)}
    return {"id": id, "effect": effect, "scope": scope, **fields}


def found(*rules: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each.rule.id, each.by.id) for each in unreachable(as_rules(rules))]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (rule("a", "allow"), rule("b", "deny")),
        (rule("a", "allow"), rule("b", "deny", "pay", SMALL)),
        (rule("a", "require_approval", "pay"), rule("b", "deny", "pay")),
        (rule("a", "allow", "read_*"), rule("b", "deny", "read_secret")),
        (rule("a", "allow", "read_*"), rule("b", "deny", "read_s*")),
        (rule("a", "allow", "*_secret"), rule("b", "deny", "read_secret")),
        (rule("a", "allow_unless_matches", "pay", SMALL), rule("b", "deny", "pay")),
        (rule("a", "deny_unless_matches", "pay", SMALL), rule("b", "allow", "pay", SMALL)),
        (rule("a", "allow", "pay", SMALL), rule("b", "allow", "pay", SMALL, EURO)),
        (rule("a", "require_approval", "pay", SMALL), rule("b", "allow", "pay", SMALL)),
        (rule("a", "deny", "pay", SMALL), rule("b", "require_approval", "pay", EURO, SMALL)),
        (rule("a", "allow", "pay", principal="*"), rule("b", "deny", "pay", principal="ann")),
        (rule("a", "allow", "pay", toolset="bank*"), rule("b", "deny", "pay", toolset="bank")),
    ],
)
def test_what_is_never_reached(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert found(first, second) == [("b", "a")]
    assert found(second, first) in ([], [("a", "b")])
    with pytest.warns(PolicyWarning, match="rule 'b' can never be reached: rule 'a'") as told:
        policy = StaticPermissionPolicy([first, second])
    assert told[0].filename == __file__
    assert list(policy.unreachable) == [str(each.message) for each in told]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (rule("a", "allow", "pay"), rule("b", "deny", "read")),
        (rule("a", "allow", "read_*"), rule("b", "deny", "read*")),
        (rule("a", "allow", "[r]*"), rule("b", "deny", "r*")),
        (rule("a", "allow", "r?*"), rule("b", "deny", "r*")),
        (rule("a", "allow", "pay", SMALL), rule("b", "deny", "pay")),
        (rule("a", "allow", "pay", SMALL), rule("b", "deny", "pay", SMALL)),  # where it cannot be told
        (rule("a", "require_approval", "pay", SMALL), rule("b", "deny", "pay", SMALL)),  # there, too
        (rule("a", "allow", "pay", SMALL, EURO), rule("b", "allow", "pay", SMALL)),
        (rule("a", "deny", "pay", SMALL), rule("b", "deny_unless_matches", "pay", SMALL)),
        (rule("a", "allow", "pay", principal="ann"), rule("b", "deny", "pay")),
        (rule("a", "allow", "pay", toolset="bank"), rule("b", "deny", "pay")),
        (
            rule("a", "allow", "pay", {"path": "x", "equals": 1}),
            rule("b", "allow", "pay", {"path": "x", "equals": True}),
        ),
    ],
)
def test_what_may_be_reached(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert found(first, second) == []
    assert StaticPermissionPolicy([first, second]).unreachable == ()


EFFECTS = ("allow", "deny", "require_approval", "allow_unless_matches", "deny_unless_matches")
RULES = st.lists(
    st.tuples(
        st.sampled_from(EFFECTS),
        st.sampled_from(["*", "pay", "p*", "pa*", "read"]),
        st.sampled_from(["*", "bank"]),
        st.sampled_from(["*", "ann"]),
        st.lists(st.sampled_from([SMALL, EURO]), max_size=2, unique_by=str),
    ),
    max_size=6,
)
ARGS = st.fixed_dictionaries(
    {}, optional={"cents": st.sampled_from([1, 9, "1"]), "currency": st.sampled_from(["EUR", "USD", 5])}
)


@given(
    RULES,
    st.sampled_from(["pay", "pa", "p", "read"]),
    st.sampled_from([None, "bank"]),
    st.sampled_from(["ann", "bob"]),
    ARGS,
)
def test_no_call_is_ever_decided_by_what_is_said_to_be_unreachable(
    drawn: list[Any], tool: str, toolset: str | None, principal: str, args: dict[str, Any]
) -> None:
    rules = [
        rule(str(place), effect, name, *constraints, toolset=group, principal=who)
        for place, (effect, name, group, who, constraints) in enumerate(drawn)
        if constraints or not effect.endswith("_unless_matches")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyWarning)
        policy = StaticPermissionPolicy(rules)
    never = {each.rule.id for each in unreachable(policy.rules)}
    action = PendingAction(tool=tool, toolset=toolset, principal=principal, args=args)
    decided = policy.evaluate(action)
    assert decided.matched_rule_id not in never
    left = StaticPermissionPolicy([each for each in rules if each["id"] not in never])
    assert left.evaluate(action) == decided, "it may be removed"


FILE = """
rules:
  - {id: all, scope: {tool: "read_*"}, effect: allow}

  - id: secret
    scope: {tool: read_secret}
    effect: deny
"""


def test_a_files_warning_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(FILE)
    with pytest.warns(PolicyWarning) as told:
        StaticPermissionPolicy.from_file(file)
    assert [str(each.message).partition(": rule")[0] for each in told] == [f"{file}:5"]
    with pytest.warns(PolicyWarning, match=r"policy\.yaml:5: rule 'secret'"):
        StaticPermissionPolicy(load_rules(file))


def test_a_long_policy_loads_quickly() -> None:
    rules = as_rules(
        [rule(f"r{n}", "allow", f"tool_{n % 50}", {"path": "n", "equals": n}) for n in range(3000)]
    )
    began = time.process_time()
    assert list(unreachable(rules)) == []
    assert time.process_time() - began < 10, "it is compared with a bounded number of others"
