"""Finding the rules that may be about a call without looking at all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import product
from operator import attrgetter

from assent.permissions.decision import PendingAction
from assent.permissions.names import is_glob, literal_prefix, name_matcher
from assent.permissions.rules import Rule


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
