"""Rules and the policy made of them: first match wins, failing closed, and why."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.errors import InvalidPolicy
from askfirst.permissions import (
    ArgConstraint,
    Decision,
    PendingAction,
    Rule,
    Scope,
    StaticPermissionPolicy,
    decide,
    tighten,
)
from askfirst.permissions.rules import EFFECTS, Effect
from askfirst.permissions.static import is_own_sentence

pytestmark = pytest.mark.anyio

ALLOW = {"allowed": True, "requires_approval": False}


def verdict(rules: list[Any], **action: Any) -> str:
    return StaticPermissionPolicy(rules).evaluate(PendingAction(**{"tool": "pay", **action})).verdict


# Effects.

SMALL = {"tool": "pay", "arg_constraints": [{"path": "cents", "lte": 500}]}


@pytest.mark.parametrize(
    ("effect", "small", "large", "untold"),
    [
        ("allow", "allow", "ask", "ask"),
        ("deny", "deny", "ask", "deny"),
        ("require_approval", "ask", "allow", "ask"),
        ("allow_unless_matches", "deny", "allow", "deny"),
        ("deny_unless_matches", "allow", "deny", "deny"),
    ],
)
def test_each_effect(effect: str, small: str, large: str, untold: str) -> None:
    """The next rule shows whether the first did not match: it asks, or allows where the first asks."""
    following = "allow" if effect == "require_approval" else "require_approval"
    rules = [{"id": "r", "scope": SMALL, "effect": effect}, {"id": "next", "effect": following}]
    assert verdict(rules, args={"cents": 5}) == small
    assert verdict(rules, args={"cents": 501}) == large
    for args in ({}, {"cents": "5"}, {"cents": True}, {"cents": None}, {"cents": [5]}):
        assert verdict(rules, args=args) == untold


def test_a_deny_is_heard_before_an_ask_that_did_not_match_for_sure() -> None:
    rules = [
        {
            "id": "large",
            "scope": {"arg_constraints": [{"path": "cents", "gt": 500}]},
            "effect": "require_approval",
        },
        {"id": "never", "scope": {"tool": "pay"}, "effect": "deny"},
    ]
    policy = StaticPermissionPolicy(rules)
    assert policy.evaluate(PendingAction(tool="pay", args={"cents": 501})).verdict == "ask"
    assert policy.evaluate(PendingAction(tool="pay", args={})).matched_rule_id == "never"
    [passed] = policy.explain(PendingAction(tool="pay", args={})).passed
    assert passed.why == "'cents' is absent or nothing that 'gt' can be tested on"


LOOSENESS = {"deny": 0, "ask": 1, "allow": 2}


@given(st.sampled_from(EFFECTS), st.sampled_from([{}, {"cents": "5"}, {"cents": None}, {"cents": {"a": 1}}]))
def test_what_cannot_be_told_is_never_looser_than_what_can(effect: Effect, args: dict[str, Any]) -> None:
    rules = [{"id": "r", "scope": SMALL, "effect": effect}]
    untold = verdict(rules, args=args)
    told = [verdict(rules, args={"cents": cents}) for cents in (5, 501)]
    assert LOOSENESS[untold] <= min(LOOSENESS[each] for each in told)


# Names.


def test_names_are_no_prefixes() -> None:
    rules = [{"id": "r", "scope": {"tool": "read"}, "effect": "allow"}]
    assert verdict(rules, tool="read") == "allow"
    assert verdict(rules, tool="read_secrets") == "deny"
    assert verdict(rules, tool="Read") == "deny"


def test_globs_match_the_whole_name() -> None:
    rules = [{"id": "r", "scope": {"tool": "read_*", "toolset": "[fg]iles"}, "effect": "allow"}]
    assert verdict(rules, tool="read_a", toolset="files") == "allow"
    assert verdict(rules, tool="xread_a", toolset="files") == "deny"
    assert verdict(rules, tool="read_a", toolset="miles") == "deny"
    assert verdict(rules, tool="read_a") == "deny"


def test_a_star_may_stand_for_nothing() -> None:
    rules = [{"id": "r", "principal": "ann*", "scope": {"tool": "read*", "toolset": "f*"}, "effect": "allow"}]
    assert verdict(rules, tool="read", toolset="f", principal="ann") == "allow"


def test_a_call_without_a_toolset_is_matched_by_the_star_alone() -> None:
    assert verdict([{"id": "r", "effect": "allow"}], toolset=None) == "allow"
    assert verdict([{"id": "r", "scope": {"toolset": "?*"}, "effect": "allow"}], toolset=None) == "deny"


def test_principals() -> None:
    rules = [{"id": "r", "principal": "ann@*", "effect": "allow"}]
    assert verdict(rules, principal="ann@example.com") == "allow"
    assert verdict(rules, principal="bob@example.com") == "deny"
    assert verdict(rules) == "deny"


# The policy.


def test_the_first_match_wins_and_is_named() -> None:
    policy = StaticPermissionPolicy(
        [
            Rule(
                id="one",
                scope=Scope(tool="pay", arg_constraints=[ArgConstraint("cents", "gt", 5)]),
                effect="deny",
            ),
            {"id": "two", "scope": {"tool": "p*"}, "effect": "require_approval"},
            {"id": "three", "effect": "allow"},
        ]
    )
    decisions = [
        policy.evaluate(PendingAction(tool=tool, args={"cents": n}))
        for tool, n in [("pay", 6), ("pay", 5), ("other", 6)]
    ]
    assert [each.matched_rule_id for each in decisions] == ["one", "two", "three"]
    assert [each.verdict for each in decisions] == ["deny", "ask", "allow"]
    assert decisions[0].reason == "rule 'one' denies it"


def test_the_default() -> None:
    action = PendingAction(tool="pay")
    assert StaticPermissionPolicy([]).evaluate(action) == Decision.deny("no rule matched")
    assert StaticPermissionPolicy([], ALLOW).evaluate(action) == Decision.allow()
    assert StaticPermissionPolicy([], default=Decision.ask("hm")).evaluate(action) == Decision.ask("hm")
    with pytest.raises(InvalidPolicy, match="a decision needs requires_approval"):
        StaticPermissionPolicy([], {"allowed": True})


async def test_files_are_looked_at_in_a_thread(tmp_path: Path) -> None:
    """The suite fails on a blocking call in the event loop."""
    scope = {"tool": "read", "arg_constraints": [{"path": "file", "within": str(tmp_path)}]}
    policy = StaticPermissionPolicy([{"id": "r", "scope": scope, "effect": "allow"}])
    files = (str(tmp_path / "a"), f"{tmp_path}/../a")
    actions = [PendingAction(tool="read", args={"file": file}) for file in files]
    assert [each.verdict for each in await decide(policy, actions)] == ["allow", "deny"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Rule(id="", effect="allow"), "id is text and not empty"),
        (lambda: Rule(id="r", effect="permit"), "effect is one of allow, deny"),  # type: ignore[arg-type]
        (lambda: Rule(id="r", effect="allow_unless_matches"), "needs arg_constraints that could match"),
        (lambda: Rule(id="r", principal=5, effect="allow"), "principal is text and not empty, not int"),  # type: ignore[arg-type]
        (lambda: Rule(id="r", scope={}, effect="allow"), "scope is a Scope"),  # type: ignore[arg-type]
        (lambda: Scope(tool=""), "tool is text and not empty"),
        (lambda: Scope(arg_constraints=[{}]), "arg_constraints is a list of ArgConstraint"),  # type: ignore[list-item]
        (lambda: Decision(1, False), "a decision's allowed is true or false, not int"),  # type: ignore[arg-type]
        (lambda: Decision(True, False, reason=5), "a decision's reason is text or absent, not int"),  # type: ignore[arg-type]
        (lambda: Decision.of({**ALLOW, "alowed": 1}), "a decision has no alowed"),
        (lambda: Decision.of("allow"), "a decision is a Decision or a dict, not str"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, said: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        make()
    assert said in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InvalidPolicy) as caught:
        StaticPermissionPolicy(
            [
                {"id": "a", "effect": "alow"},
                {"effect": "allow", "tool": "pay"},
                {
                    "id": "a",
                    "effect": "deny",
                    "scope": {"arg_constraints": [{"path": "x", "lt": 1, "gt": 0}]},
                },
                Rule(id="a", effect="deny"),
                "allow all",  # type: ignore[list-item]
            ]
        )
    problems = caught.value.problems
    assert [problem.split(":")[0] for problem in problems] == [
        "rule 'a'",
        "rule number 2",
        "rule number 2",
        "rule 'a'",
        "rule number 5",
        "rule 'a'",
        "rule 'a'",
    ]
    assert "a rule has no 'tool'" in problems[1]
    assert "it needs an id of its own" in problems[2]
    assert "a constraint has one test" in problems[3]
    assert problems[-1].endswith("its id is taken by rule number 1; give each its own")


# Against a model.

NAMES = ["read", "read_a", "write", "w", "*", "read*", "r?ad", "[rw]*", "*_a", "wr*te"]
EXACT = ["read", "read_a", "write", "w", "rxad"]
CONSTRAINTS: list[list[dict[str, Any]]] = [
    [],
    [{"path": "n", "lt": 2}],
    [{"path": "n", "equals": 3}],
    [{"path": "n", "gte": 1}, {"path": "s", "glob": "a*"}],
]


@st.composite
def rule_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 12))):
        constraints = draw(st.sampled_from(CONSTRAINTS))
        effects = EFFECTS if constraints else EFFECTS[:3]
        names = st.sampled_from(NAMES)
        scope = {"tool": draw(names), "toolset": draw(names), "arg_constraints": constraints}
        rules.append(
            {
                "id": f"r{number}",
                "principal": draw(names),
                "scope": scope,
                "effect": draw(st.sampled_from(effects)),
            }
        )
    return rules


ACTIONS = st.builds(
    PendingAction,
    tool=st.sampled_from(EXACT),
    toolset=st.none() | st.sampled_from(EXACT),
    principal=st.sampled_from(EXACT),
    args=st.fixed_dictionaries(
        {},
        optional={"n": st.sampled_from([0, 1, 2, 3, "2", True, None]), "s": st.sampled_from(["a", "b", 1])},
    ),
)


YES = {"allow": "allow", "deny": "deny", "require_approval": "ask"}
YES |= {"allow_unless_matches": "deny", "deny_unless_matches": "allow"}
NO = {"allow_unless_matches": "allow", "deny_unless_matches": "deny"}


def naive(rules: list[dict[str, Any]], action: PendingAction) -> tuple[str, str | None]:
    """First match wins; what cannot be told is read both ways, and the stricter outcome counts."""
    for number, rule in enumerate(rules):
        names = [(action.principal, rule["principal"]), (action.tool, rule["scope"]["tool"])]
        names.append((action.toolset or "", rule["scope"]["toolset"]))
        if not all(fnmatchcase(name, pattern) for name, pattern in names):
            continue
        told = [naive_test(each, dict(action.args)) for each in rule["scope"]["arg_constraints"]]
        rest = naive(rules[number + 1 :], action)
        yes = (YES[rule["effect"]], rule["id"])
        no = (NO[rule["effect"]], rule["id"]) if rule["effect"] in NO else rest
        if "no" in told:
            return no
        if "?" in told:
            order = (no, yes) if rule["effect"] == "allow" else (yes, no)
            return min(order, key=lambda each: LOOSENESS[each[0]])
        return yes
    return "deny", None


def naive_test(constraint: dict[str, Any], args: dict[str, Any]) -> str:
    value = args.get(constraint["path"])
    if constraint["path"] == "n":
        if type(value) is not int:
            return "?"
        fits = {
            "lt": value < constraint.get("lt", 0),
            "equals": value == constraint.get("equals"),
            "gte": value >= constraint.get("gte", 0),
        }[next(key for key in constraint if key != "path")]
        return "yes" if fits else "no"
    if type(value) is not str:
        return "?"
    return "yes" if value.startswith("a") else "no"


@pytest.mark.filterwarnings("ignore::askfirst.permissions.PolicyWarning")
@given(rule_lists(), ACTIONS)
def test_the_index_decides_as_a_linear_scan_would(rules: list[dict[str, Any]], action: PendingAction) -> None:
    decision = StaticPermissionPolicy(rules).evaluate(action)
    assert (decision.verdict, decision.matched_rule_id) == naive(rules, action)


@pytest.mark.filterwarnings("ignore::askfirst.permissions.PolicyWarning")
@given(rule_lists(), ACTIONS)
def test_explain_agrees_with_evaluate(rules: list[dict[str, Any]], action: PendingAction) -> None:
    policy = StaticPermissionPolicy(rules)
    explanation = policy.explain(action)
    assert explanation.decision == policy.evaluate(action)
    assert (explanation.rule.id if explanation.rule else None) == explanation.decision.matched_rule_id
    decided = len(rules) if explanation.rule is None else policy.rules.index(explanation.rule)
    assert [each.rule for each in explanation.passed] == list(policy.rules[:decided])
    assert all(each.why for each in explanation.passed)


# Explaining.


def test_an_explanation_in_words() -> None:
    policy = StaticPermissionPolicy(
        [
            {"id": "read", "scope": {"tool": "read_*"}, "effect": "allow"},
            {"id": "crm", "scope": {"toolset": "crm"}, "effect": "allow"},
            {"id": "ann", "principal": "ann", "effect": "allow"},
            {"id": "small", "scope": SMALL, "effect": "allow"},
            {
                "id": "eur",
                "scope": {"arg_constraints": [{"path": "currency", "equals": "EUR"}]},
                "effect": "allow",
            },
            {"id": "ask", "scope": {"tool": "pay"}, "effect": "require_approval"},
        ]
    )
    text = str(
        policy.explain(PendingAction(tool="pay", principal="bob", args={"cents": 987654, "to": "Eve"}))
    )
    assert text.splitlines() == [
        "rule 'read' does not match: it is about tool 'read_*', and this is 'pay'",
        "rule 'crm' does not match: it is about toolset 'crm', and this has none",
        "rule 'ann' does not match: it is about principal 'ann', and this is 'bob'",
        "rule 'small' does not match: 'cents' fails the test 'lte'",
        "rule 'eur' does not match: 'currency' is absent or nothing that 'equals' can be tested on",
        "rule 'ask' requires approval",
    ]


def test_a_rule_says_why_in_a_sentence_of_its_own() -> None:
    policy = StaticPermissionPolicy(
        [
            {
                "id": "big",
                "scope": {"tool": "pay", "arg_constraints": [{"path": "cents", "gt": 500}]},
                "effect": "require_approval",
                "reason": "Payments above 5.00 EUR need a person.",
            },
            {"id": "rest", "effect": "require_approval"},
        ]
    )
    big, odd = PendingAction(tool="pay", args={"cents": 501}), PendingAction(tool="pay", args={"cents": "x"})
    decision = policy.evaluate(big)
    assert (decision.reason, decision.matched_rule_id) == ("Payments above 5.00 EUR need a person.", "big")
    assert is_own_sentence(decision.reason, "big")
    assert str(policy.explain(big)) == (
        "rule 'big' requires approval: Payments above 5.00 EUR need a person."
    )
    said = policy.evaluate(odd).reason
    assert said is not None
    assert said.startswith("Payments above 5.00 EUR need a person. ('cents' is absent or nothing")
    named = policy.evaluate(PendingAction(tool="read"))
    assert not is_own_sentence(named.reason, named.matched_rule_id)
    with pytest.raises(InvalidPolicy, match="reason is text and not empty"):
        Rule(id="r", effect="deny", reason="")


def test_no_value_of_an_argument_is_in_words_or_reprs() -> None:
    constraints = [{"path": "to", "equals": "bob"}]
    for effect in EFFECTS:
        policy = StaticPermissionPolicy(
            [{"id": "r", "scope": {"arg_constraints": constraints}, "effect": effect}]
        )
        for args in ({"to": "s3cr3t"}, {"to": ["s3cr3t"]}, {"other": "s3cr3t"}):
            action = PendingAction(tool="pay", args=args)
            explanation = policy.explain(action)
            assert "s3cr3t" not in f"{explanation} {explanation!r} {action!r} {policy.evaluate(action)!r}"


# What a rule and a guardrail tell the person who is asked.


def test_a_rule_gives_its_reason_and_raises_the_risk() -> None:
    rule = Rule(
        id="refunds",
        effect="require_approval",
        reason="Refunds need a person.",
        risk="high",
        hold_seconds=20,
    )
    policy = StaticPermissionPolicy([rule])
    decision = policy.evaluate(PendingAction(tool="pay"))
    assert (decision.reason, decision.risk) == ("Refunds need a person.", "high")
    assert decision.hold_seconds == 20
    assert decision.matched_rule_id == "refunds"
    assert str(policy.explain(PendingAction(tool="pay"))) == (
        "rule 'refunds' requires approval: Refunds need a person."
    )


def test_a_reason_and_what_could_not_be_told_are_one_sentence() -> None:
    small = Scope(tool="pay", arg_constraints=[ArgConstraint("cents", "lte", 500)])
    policy = StaticPermissionPolicy(
        [Rule(id="r", scope=small, effect="require_approval", reason="Pay less.")]
    )
    assert policy.evaluate(PendingAction(tool="pay", args={"cents": 5})).reason == "Pay less."
    said = policy.evaluate(PendingAction(tool="pay")).reason
    assert said == "no rule matched"  # the default denies, and goes before what may have matched
    asking = StaticPermissionPolicy(policy.rules, default=Decision.ask())
    assert asking.evaluate(PendingAction(tool="pay")).reason == (
        "Pay less. ('cents' is absent or nothing that 'lte' can be tested on)"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"effect": "deny", "risk": "high"}, "risk goes with the effect require_approval"),
        (
            {"effect": "require_approval", "risk": "dire"},
            "risk is one of low, normal, high, critical, not 'dire'",
        ),
        ({"effect": "require_approval", "reason": 7}, "reason is text and not empty, not int"),
        ({"effect": "deny", "hold_seconds": 5}, "hold_seconds goes with the effect require_approval"),
        ({"effect": "require_approval", "hold_seconds": 61}, "hold_seconds is a number from 0 to 60, not 61"),
        ({"effect": "require_approval", "hold_seconds": True}, "hold_seconds is a number from 0 to 60"),
    ],
)
def test_words_of_a_rule_that_make_no_sense_are_refused(words: dict[str, Any], said: str) -> None:
    for make in (lambda: Rule(id="r", **words), lambda: StaticPermissionPolicy([{"id": "r", **words}])):
        with pytest.raises(InvalidPolicy, match=said):
            make()


def test_a_risk_that_is_none_is_refused_in_a_decision() -> None:
    with pytest.raises(InvalidPolicy, match="a decision's risk is one of"):
        Decision.of({"allowed": False, "requires_approval": True, "risk": "dire"})


async def test_of_all_who_ask_the_reasons_are_kept_and_the_highest_risk() -> None:
    rule = Rule(id="refunds", effect="require_approval", reason="Refunds need a person.", risk="low")
    action = PendingAction(tool="pay")
    guardrails = [
        lambda _: Decision.ask("A large amount.", risk="critical", hold_seconds=30),
        lambda _: Decision.ask("A new customer.", risk="high", hold_seconds=0),
        lambda _: None,
    ]
    [decision] = await tighten([StaticPermissionPolicy([rule]).evaluate(action)], [action], guardrails)
    assert decision.risk == "critical"
    assert decision.hold_seconds == 30
    assert decision.reason == "Refunds need a person."
    assert [(it.reason, it.matched_rule_id) for it in decision.also] == [
        ("A large amount.", None),
        ("A new customer.", None),
    ]
