"""Rules, and the index that finds those for a tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import product
from operator import attrgetter
from typing import Any, Literal, get_args

from askfirst.display import Risk
from askfirst.errors import InvalidPolicy
from askfirst.permissions.constraints import ArgConstraint
from askfirst.permissions.decision import PendingAction, Verdict, hold_problems, risk_problems
from askfirst.permissions.operators import is_glob, literal_prefix, name_matcher
from askfirst.requests import approval_seconds
from askfirst.wording import Wording, wording_faults

Effect = Literal["allow", "deny", "require_approval", "allow_unless_matches", "deny_unless_matches"]
"""What a rule does. The guide on permissions has a table of effects and constraints."""

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
    long people have, in seconds or as a text such as ``"24h"``; after that the call is denied. ``reason`` says why
    in a sentence, for the person who is asked, or the model whose call is denied; in several languages, a model reads
    the first. ``risk`` goes with ``require_approval``, too: the least risk that the person is told. So does
    ``hold_seconds``: for how long a decision made on the review page can be undone. Raises `InvalidPolicy` if it
    makes no sense.
    """

    id: str
    principal: str = "*"
    scope: Scope = field(default_factory=Scope)
    effect: Effect
    approval_timeout: float | str | None = None
    reason: Wording | None = None
    risk: Risk | None = None
    hold_seconds: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scope, Scope):
            raise InvalidPolicy(["scope is a Scope"])
        problems = [*name_problems("id", self.id), *name_problems("principal", self.principal)]
        problems += effect_problems(self.effect, bool(self.scope.arg_constraints))
        problems += timeout_problems(self.approval_timeout, self.effect)
        problems += [] if self.reason is None else reason_problems("reason", self.reason)
        problems += risk_of_rule_problems(self.risk, self.effect)
        problems += hold_of_rule_problems(self.hold_seconds, self.effect)
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


def risk_of_rule_problems(risk: Any, effect: Any) -> list[str]:
    """What is wrong with a rule's risk, in sentences."""
    problems = risk_problems(risk)
    if risk is not None and effect != "require_approval":
        problems.append("risk goes with the effect require_approval: nobody is asked by another one")
    return problems


def hold_of_rule_problems(seconds: Any, effect: Any) -> list[str]:
    """What is wrong with how long a rule has decisions held, in sentences."""
    problems = hold_problems(seconds)
    if seconds is not None and effect != "require_approval":
        problems.append("hold_seconds goes with the effect require_approval: nobody is asked by another one")
    return problems


def name_problems(what: str, value: Any) -> list[str]:
    """What is wrong with a name, in sentences."""
    if isinstance(value, str) and value:
        return []
    return [f"{what} is text and not empty" + ("" if value == "" else f", not {type(value).__name__}")]


def reason_problems(what: str, value: Any) -> list[str]:
    """What is wrong with a reason in one or several languages, in sentences."""
    return wording_faults(what, value) if isinstance(value, Mapping) else name_problems(what, value)


def effect_problems(effect: Any, has_constraints: bool) -> list[str]:
    """What is wrong with an effect, in sentences."""
    if not isinstance(effect, str) or effect not in EFFECTS:
        shown = repr(effect) if isinstance(effect, str) else type(effect).__name__
        return [f"effect is one of {', '.join(EFFECTS)}, not {shown}"]
    if effect.endswith("_unless_matches") and not has_constraints:
        return [f"{effect} needs arg_constraints that could match"]
    return []


def verdict_of(effect: Effect, holds: bool | None) -> Verdict | None:
    """A rule's decision, given whether its constraints hold (None: undecidable); None if the rule does not match.

    Undecidable constraints never make a rule allow, and never keep it from denying or asking (fail closed).
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


# Finding the rules that may be about a call without looking at all of them.


@dataclass(frozen=True, slots=True)
class Placed:
    """A rule, its place in the policy, and how its names match."""

    place: int
    rule: Rule
    principal: Callable[[str], bool]
    toolset: Callable[[str], bool]
    tool: Callable[[str], bool]

    @classmethod
    def at(cls, place: int, rule: Rule) -> Placed:
        scope = rule.scope
        names = (rule.principal, scope.toolset, scope.tool)
        return cls(place, rule, *map(name_matcher, names))

    def is_about(self, action: PendingAction) -> bool:
        """Whether its names match the call's."""
        return (
            self.tool(action.tool) and self.toolset(action.toolset or "") and self.principal(action.principal)
        )


def _buckets() -> dict[str, list[Placed]]:
    return {}


@dataclass(slots=True)
class _Tools:
    """Rules by their tool: those that name it, and globs by what stands before the first wildcard."""

    exact: dict[str, list[Placed]] = field(default_factory=_buckets)
    globs: dict[str, list[Placed]] = field(default_factory=_buckets)
    lengths: tuple[int, ...] = ()

    def add(self, placed: Placed) -> None:
        tool = placed.rule.scope.tool
        if not is_glob(tool):
            self.exact.setdefault(tool, []).append(placed)
            return
        prefix = literal_prefix(tool)
        self.globs.setdefault(prefix, []).append(placed)
        if len(prefix) not in self.lengths:
            self.lengths = tuple(sorted((*self.lengths, len(prefix))))

    def lists(self, tool: str) -> Iterator[list[Placed]]:
        if tool in self.exact:
            yield self.exact[tool]
        for length in self.lengths:
            if length > len(tool):
                return
            if tool[:length] in self.globs:
                yield self.globs[tool[:length]]


class RuleIndex:
    """The rules of a policy, by principal, toolset and tool where these are named without a wildcard."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.placed = [Placed.at(place, rule) for place, rule in enumerate(rules)]
        self._by_names: dict[tuple[str | None, str | None], _Tools] = {}
        for placed in self.placed:
            names = (_exact(placed.rule.principal), _exact(placed.rule.scope.toolset))
            self._by_names.setdefault(names, _Tools()).add(placed)

    def about(self, action: PendingAction) -> Iterable[Placed]:
        """The rules whose names match a call, in the policy's order."""
        found: list[list[Placed]] = []
        toolsets = (None, action.toolset) if action.toolset else (None,)
        for names in product((None, action.principal), toolsets):
            tools = self._by_names.get(names)
            if tools is not None:
                found.extend(tools.lists(action.tool))
        candidates = found[0] if len(found) == 1 else merge(*found, key=attrgetter("place"))
        return (placed for placed in candidates if placed.is_about(action))


def _exact(pattern: str) -> str | None:
    return None if is_glob(pattern) else pattern
