"""StaticPermissionPolicy, and why it decides as it does."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askfirst.permissions.constraints import all_hold
from askfirst.permissions.decision import Decision, PendingAction, Verdict, reason_fields
from askfirst.permissions.policy_file import FileRules, PolicyWarning, as_rules, read_policy_file, unreachable
from askfirst.permissions.rules import Placed, Rule, RuleIndex, verdict_of
from askfirst.wording import Wording

_NO_RULE = "no rule matched"


class StaticPermissionPolicy:
    """Rules in order, the first match wins, and a default for calls that none matches.

    A rule is a `Rule` or a dict. ``default`` is a `Decision` or a dict; without one such calls are denied.
    Raises `InvalidPolicy`, naming every mistake, for rules that make no sense. A rule that can never be reached is
    a `PolicyWarning`; ``unreachable`` has a sentence for each.
    """

    def __init__(
        self,
        rules: Sequence[Rule | Mapping[str, Any]],
        default: Decision | Mapping[str, Any] | None = None,
    ) -> None:
        self.rules = as_rules(rules)
        self.unreachable = tuple(_told(rules, self.rules))
        for problem in self.unreachable:
            warnings.warn(problem, PolicyWarning, stacklevel=2)
        self.default = Decision.deny(_NO_RULE) if default is None else Decision.of(default)
        self._index = RuleIndex(self.rules)
        self._touches_files = any(
            each.touches_files for rule in self.rules for each in rule.scope.arg_constraints
        )

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], default: Decision | Mapping[str, Any] | None = None
    ) -> StaticPermissionPolicy:
        """The policy in a YAML, TOML or JSON file, told by its suffix.

        ``default`` counts if the file names none. Raises `InvalidPolicy` with file, line and rule of every
        mistake.
        """
        rules, in_file = read_policy_file(path)
        return cls(rules, default if in_file is None else in_file)

    def evaluate(self, action: PendingAction) -> Decision:
        """Decide about one call."""
        decision, _ = self._decide(self._index.about(action), action)
        return decision

    async def evaluate_many(self, actions: Sequence[PendingAction]) -> list[Decision]:
        """Decide about these calls; in a thread if a rule has to look at files."""
        if self._touches_files:
            return await asyncio.to_thread(self._evaluate_all, actions)
        return self._evaluate_all(actions)

    def explain(self, action: PendingAction) -> Explanation:
        """Which rule decides about a call, and why each one before it does not."""
        about = (placed for placed in self._index.placed if placed.is_about(action))
        decision, by = self._decide(about, action)
        before = self._index.placed[: None if by is None else by.place]
        passed = tuple(PassedRule(placed.rule, why_not(placed, action)) for placed in before)
        if by is None:
            return Explanation(decision, None, f"{_NO_RULE}: the default is {decision.verdict}", passed)
        said = decision.reason or ""
        if by.rule.reason is not None:
            said = f"{_made(by.rule.id, decision.verdict)}: {said}"
        return Explanation(decision, by.rule, said, passed)

    def _decide(self, about: Iterable[Placed], action: PendingAction) -> tuple[Decision, Placed | None]:
        """The decision of the first matching rule, and that rule.

        A rule that asks because its constraints are undecidable has not matched for sure. So a later rule, or
        the default, that denies takes precedence over it.
        """
        asking: tuple[Decision, Placed] | None = None
        decided: tuple[Decision, Placed | None] = (self.default, None)
        for placed in about:
            rule = placed.rule
            holds = all_hold(rule.scope.arg_constraints, action.args)
            verdict = verdict_of(rule.effect, holds)
            if verdict is None:
                continue
            said = Decision(
                verdict == "allow",
                verdict == "ask",
                rule.id,
                approval_timeout=rule.approval_timeout,
                risk=rule.risk,
                hold_seconds=rule.hold_seconds,
                **reason_fields(because(rule, verdict, action.args, holds)),
            )
            if verdict == "ask" and holds is None:
                asking = asking or (said, placed)
            else:
                decided = (said, placed)
                break
        return decided if asking is None or decided[0].verdict == "deny" else asking

    def _evaluate_all(self, actions: Sequence[PendingAction]) -> list[Decision]:
        return [self.evaluate(action) for action in actions]


def _told(given: Sequence[Any], rules: Sequence[Rule]) -> Iterator[str]:
    """A sentence for each rule that is never reached, with the place where it stands if it is of a file."""
    where = given.where if isinstance(given, FileRules) else ()
    for found in unreachable(rules):
        yield f"{where[found.place]}: {found}" if where else str(found)


# Why a policy decides as it does, in words that may be logged: no value of an argument is in them.


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


def is_own_sentence(reason: str | None, rule_id: str | None) -> bool:
    """Whether a reason to ask was written for people: not made from the rule's name, nor for want of a rule."""
    made = _NO_RULE if rule_id is None else _made(rule_id, "ask")
    return reason is not None and reason != made


def _made(rule_id: str, verdict: Verdict) -> str:
    return f"rule {rule_id!r} {_SAYS[verdict]}"


def because(rule: Rule, verdict: Verdict, args: Mapping[str, Any], holds: bool | None) -> Wording:
    """The rule's own sentence, else what it decides; and why, if its constraints are undecidable."""
    if rule.reason is not None:
        if holds is not None:
            return rule.reason
        if isinstance(rule.reason, str):
            return f"{rule.reason} ({_untold(rule, args)})"
        return {tag: f"{said} ({_untold(rule, args)})" for tag, said in rule.reason.items()}
    said = _made(rule.id, verdict)
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
