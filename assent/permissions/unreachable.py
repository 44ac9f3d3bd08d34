"""Rules that can never decide anything, because one before them always does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from assent.permissions.names import is_glob, literal_prefix, name_matcher
from assent.permissions.rules import Rule

MOST = 200
"""With how many earlier rules of a kind a rule is compared, so that a long policy loads quickly."""


class PolicyWarning(UserWarning):
    """Something in a policy that is allowed, and surely not what was meant."""


class FileRules(tuple[Rule, ...]):
    """The rules of a file, and where each of them stands: ``"policy.toml:12"``."""

    where: tuple[str, ...] = ()


class Unreachable(NamedTuple):
    """A rule that is never reached, by its place in the policy, and the one before it that always decides."""

    place: int
    rule: Rule
    by: Rule

    def __str__(self) -> str:
        return (
            f"rule {self.rule.id!r} can never be reached: rule {self.by.id!r}, which stands before it, decides "
            "about every call that it is about; put it first, or remove it"
        )


def unreachable(rules: Sequence[Rule]) -> Iterator[Unreachable]:
    """The rules that are never reached, as far as names and constraints show it.

    Only what one earlier rule covers alone is found: what several cover together is not.
    """
    final: dict[str, list[Rule]] = {}
    """Rules that decide whatever the arguments are, by the tool that they name, all globs under ``"*"``."""
    alike: dict[tuple[str, str, str], list[Rule]] = {}
    for place, rule in enumerate(rules):
        tool, names = rule.scope.tool, _names(rule)
        kinds = ("*",) if is_glob(tool) else ("*", tool)
        before = [each for kind in kinds for each in final.get(kind, ())]
        by = next((each for each in before if _covers_names(each, rule)), None)
        by = by or next((each for each in alike.get(names, ()) if _is_first(each, rule)), None)
        if by is not None:
            yield Unreachable(place, rule, by)
            continue
        same = (
            final.setdefault("*" if is_glob(tool) else tool, [])
            if _is_final(rule)
            else alike.setdefault(names, [])
        )
        if len(same) < MOST:
            same.append(rule)


def _is_final(rule: Rule) -> bool:
    """Whether a rule decides about every call whose names it matches."""
    return not rule.scope.arg_constraints or rule.effect.endswith("_unless_matches")


def _names(rule: Rule) -> tuple[str, str, str]:
    return rule.principal, rule.scope.toolset, rule.scope.tool


def _covers_names(earlier: Rule, later: Rule) -> bool:
    return all(_covers(one, other) for one, other in zip(_names(earlier), _names(later), strict=True))


def _covers(pattern: str, other: str) -> bool:
    """Whether a pattern matches whatever the other does, as far as that is plain to see."""
    if pattern in ("*", other):
        return True
    if not is_glob(other):
        return name_matcher(pattern)(other)
    prefix = literal_prefix(pattern)
    return pattern == f"{prefix}*" and literal_prefix(other).startswith(prefix)


def _is_first(earlier: Rule, later: Rule) -> bool:
    """Whether, of two rules with the same names and with constraints, the earlier decides wherever the later would.

    What fits all constraints of the later fits those of the earlier, which are among them. Where constraints cannot
    be told, a rule that allows decides nothing, one that denies does, and one that asks only may.
    """
    if later.effect.endswith("_unless_matches"):  # it decides where its constraints do not hold, too
        return False
    ours, theirs = _constraints(later), _constraints(earlier)
    return theirs <= ours and (later.effect == "allow" or earlier.effect == "deny")


def _constraints(rule: Rule) -> set[tuple[str, str, str]]:
    return {(each.path, each.test, repr(each.value)) for each in rule.scope.arg_constraints}
