"""A policy of rules: the first that matches decides."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from assent.permissions.constraints import all_hold
from assent.permissions.decision import Decision, PendingAction
from assent.permissions.explain import Explanation, PassedRule, because, why_not
from assent.permissions.index import Placed, RuleIndex
from assent.permissions.policy_file import read_policy_file
from assent.permissions.reading import as_rules
from assent.permissions.rules import Rule, verdict_of
from assent.permissions.unreachable import FileRules, PolicyWarning, unreachable

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
        return Explanation(decision, by.rule, decision.reason or "", passed)

    def _decide(self, about: Iterable[Placed], action: PendingAction) -> tuple[Decision, Placed | None]:
        """What the first of the rules that matches says, and which it is.

        A rule that asks because its constraints cannot be told has not matched for sure. So a later one, or
        the default, that denies is heard before it.
        """
        asking: tuple[Decision, Placed] | None = None
        decided: tuple[Decision, Placed | None] = (self.default, None)
        for placed in about:
            rule = placed.rule
            holds = all_hold(rule.scope.arg_constraints, action.args)
            verdict = verdict_of(rule.effect, holds)
            if verdict is None:
                continue
            why = because(rule, verdict, action.args, holds)
            said = Decision(
                verdict == "allow", verdict == "ask", rule.id, why, approval_timeout=rule.approval_timeout
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
