"""Rules from a file, with every mistake named, rules that can never match included."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from askfirst.errors import InvalidPolicy
from askfirst.permissions.constraints import TESTS, ArgConstraint, path_problems
from askfirst.permissions.decision import Decision
from askfirst.permissions.line_numbers import Fault, Located, Unreadable, read_json, read_toml, read_yaml
from askfirst.permissions.operators import is_glob, literal_prefix, name_matcher
from askfirst.permissions.rules import (
    EFFECTS,
    Rule,
    Scope,
    effect_problems,
    hold_of_rule_problems,
    name_problems,
    reason_problems,
    risk_of_rule_problems,
    timeout_problems,
)

# Rules that can never decide anything, because one before them always does.


MOST = 200
"""With how many earlier rules of a kind a rule is compared, so that a long policy loads quickly."""


class PolicyWarning(UserWarning):
    """A policy has something that is allowed, but surely a mistake."""


class FileRules(tuple[Rule, ...]):
    """The rules of a file, and the place of each: ``"policy.toml:12"``."""

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
    """Whether a pattern surely matches everything that the other matches."""
    if pattern in ("*", other):
        return True
    if not is_glob(other):
        return name_matcher(pattern)(other)
    prefix = literal_prefix(pattern)
    return pattern == f"{prefix}*" and literal_prefix(other).startswith(prefix)


def _is_first(earlier: Rule, later: Rule) -> bool:
    """Whether the earlier of two rules with equal names decides wherever the later one would.

    The earlier rule's constraints must be a subset of the later one's. Where constraints are undecidable, an
    allow does not match, a deny does, and an ask may be overruled.
    """
    if later.effect.endswith("_unless_matches"):  # it decides where its constraints do not hold, too
        return False
    ours, theirs = _constraints(later), _constraints(earlier)
    return theirs <= ours and (later.effect == "allow" or earlier.effect == "deny")


def _constraints(rule: Rule) -> set[tuple[str, str, str]]:
    return {(each.path, each.test, repr(each.value)) for each in rule.scope.arg_constraints}


# Reading rules from plain data, and naming everything that is wrong with them.


_Place = tuple[str | int, ...]

_RULE_KEYS = ("id", "principal", "scope", "effect", "approval_timeout", "reason", "risk", "hold_seconds")
_SCOPE_KEYS = ("toolset", "tool", "arg_constraints")


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong in plain data: where (a path of keys and places), in which rule, and what."""

    path: _Place
    rule: str | None
    sentence: str

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.sentence}" if self.rule else self.sentence


def _none() -> list[Mistake]:
    return []


@dataclass(slots=True)
class RuleReader:
    """Reads a list of rules, and collects the ``mistakes`` in it."""

    base: _Place = ()
    """The path of the list itself."""
    mistakes: list[Mistake] = field(default_factory=_none)

    def rules(self, raw: Any) -> tuple[Rule, ...]:
        """The valid rules; all of them if there are no mistakes."""
        if isinstance(raw, str | Mapping) or not isinstance(raw, Sequence):
            self.mistakes.append(Mistake(self.base, None, f"rules are a list, not {_kind(raw)}"))
            return ()
        items = cast("Sequence[Any]", raw)
        rules = [self._rule(place, item) for place, item in enumerate(items)]
        self._same_ids([_id_of(item) for item in items])
        return tuple(rule for rule in rules if rule is not None)

    def _same_ids(self, ids: Sequence[str | None]) -> None:
        first: dict[str, int] = {}
        for place, name in enumerate(ids):
            if name is not None and first.setdefault(name, place) != place:
                sentence = f"its id is taken by rule number {first[name] + 1}; give each its own"
                self.mistakes.append(Mistake((*self.base, place, "id"), repr(name), sentence))

    def _rule(self, place: int, raw: Any) -> Rule | None:
        if isinstance(raw, Rule):
            return raw
        before = len(self.mistakes)
        given = _id_of(raw)
        name = f"number {place + 1}" if given is None else repr(given)
        made = _OneRule((*self.base, place), name, self.mistakes).read(raw)
        return made if len(self.mistakes) == before else None


@dataclass(frozen=True, slots=True)
class _OneRule:
    """One rule of plain data, while it is read."""

    path: _Place
    name: str
    mistakes: list[Mistake]

    def wrong(self, sentence: str, *below: str | int) -> None:
        self.mistakes.append(Mistake((*self.path, *below), self.name, sentence))

    def read(self, raw: Any) -> Rule | None:
        fields = self._object("a rule", raw, _RULE_KEYS)
        if fields is None:
            return None
        for key in ("id", "effect"):
            if key not in fields:
                hint = f": one of {', '.join(EFFECTS)}" if key == "effect" else " of its own"
                self.wrong(f"it needs an {key}{hint}")
        self._check(fields, "id", name_problems)
        self._check(fields, "principal", name_problems)
        scope = self._scope(fields.get("scope", {}))
        if "effect" in fields:
            constrained = scope is None or bool(scope.arg_constraints)
            for problem in effect_problems(fields["effect"], constrained):
                self.wrong(problem, "effect")
        for problem in timeout_problems(fields.get("approval_timeout"), fields.get("effect")):
            self.wrong(problem, "approval_timeout")
        self._check(fields, "reason", reason_problems)
        for problem in risk_of_rule_problems(fields.get("risk"), fields.get("effect")):
            self.wrong(problem, "risk")
        for problem in hold_of_rule_problems(fields.get("hold_seconds"), fields.get("effect")):
            self.wrong(problem, "hold_seconds")
        if scope is None or self.mistakes:
            return None
        fields["scope"] = scope
        return Rule(**fields)

    def _scope(self, raw: Any) -> Scope | None:
        if isinstance(raw, Scope):
            return raw
        before = len(self.mistakes)
        fields = self._object("scope", raw, _SCOPE_KEYS, "scope")
        if fields is None:
            return None
        self._check(fields, "toolset", name_problems, "scope")
        self._check(fields, "tool", name_problems, "scope")
        constraints = self._constraints(fields.get("arg_constraints", ()))
        if len(self.mistakes) > before:
            return None
        fields["arg_constraints"] = constraints
        return Scope(**fields)

    def _constraints(self, raw: Any) -> list[ArgConstraint]:
        if not isinstance(raw, list | tuple):
            self.wrong(f"arg_constraints is a list, not {_kind(raw)}", "scope", "arg_constraints")
            return []
        items = enumerate(cast("Sequence[Any]", raw))
        return [each for place, item in items for each in self._constraint(place, item)]

    def _constraint(self, place: int, raw: Any) -> Iterator[ArgConstraint]:
        if isinstance(raw, ArgConstraint):
            yield raw
            return
        below = ("scope", "arg_constraints", place)
        fields = self._object("a constraint", raw, ("path", *TESTS), *below)
        if fields is None:
            return
        tests = [key for key in fields if key in TESTS]
        is_known = len(fields) == len(cast("Mapping[Any, Any]", raw))
        faults = path_problems(fields.get("path"))
        for problem in faults:
            self.wrong(problem, *below, "path")
        if len(tests) > 1 or (is_known and not tests):
            known = f"one of {', '.join(TESTS)}"
            self.wrong(f"a constraint has one test ({known}), not {len(tests) or 'none'}", *below)
        elif tests:
            try:
                made = ArgConstraint("path" if faults else fields["path"], tests[0], fields[tests[0]])
            except InvalidPolicy as error:
                self.wrong(str(error), *below, tests[0])
            else:
                yield made

    def _object(self, what: str, raw: Any, keys: Sequence[str], *below: str | int) -> dict[str, Any] | None:
        """The known fields of an object; its unknown ones are mistakes."""
        if not isinstance(raw, Mapping):
            self.wrong(f"{what} is an object with {', '.join(keys)}, not {_kind(raw)}", *below)
            return None
        fields = cast("Mapping[Any, Any]", raw)
        for key in fields:
            if key not in keys:
                self.wrong(f"{what} has no {key!r}; it has {', '.join(keys)}", *below, key)
        return {key: value for key, value in fields.items() if key in keys}

    def _check(
        self, fields: Mapping[str, Any], key: str, problems: Callable[[str, Any], list[str]], *below: str
    ) -> None:
        if key in fields:
            for problem in problems(key, fields[key]):
                self.wrong(problem, *below, key)


def as_rules(raw: Sequence[Rule | Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Rules from `Rule` objects and dicts; raises `InvalidPolicy` with all that is wrong."""
    reader = RuleReader()
    rules = reader.rules(raw)
    if reader.mistakes:
        raise InvalidPolicy([str(mistake) for mistake in reader.mistakes])
    return rules


def _id_of(raw: Any) -> str | None:
    if isinstance(raw, Rule):
        return raw.id
    given = cast("Mapping[str, Any]", raw).get("id") if isinstance(raw, Mapping) else None
    return given if isinstance(given, str) and given else None


def _kind(value: Any) -> str:
    kinds: tuple[tuple[Any, str], ...] = (
        (str, "text"),
        (bool, "true or false"),
        ((int, float), "a number"),
        (Mapping, "an object"),
        ((list, tuple), "a list"),
        (type(None), "nothing"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), type(value).__name__)


_READERS: Mapping[str, Callable[[str], Located]] = {
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".toml": read_toml,
    ".json": read_json,
}
_KEYS = ("default", "rules")
_WORDS = {
    "allow": Decision.allow("no rule matched"),
    "ask": Decision.ask("no rule matched"),
    "deny": Decision.deny("no rule matched"),
}


def load_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """The rules of a policy file, told by its suffix: ``.yaml``, ``.yml``, ``.toml`` or ``.json``.

    Raises `InvalidPolicy` that names file, line and rule of every mistake.
    """
    return read_policy_file(path)[0]


def read_policy_file(path: str | os.PathLike[str]) -> tuple[tuple[Rule, ...], Decision | None]:
    """The rules of a policy file, and its default if it names one."""
    file = Path(path)
    try:
        return _rules_in(_located(file), file)
    except Unreadable as error:
        raise _invalid(file, [error.fault]) from None


def policy_in_text(text: str, name: str) -> tuple[tuple[Rule, ...], Decision | None]:
    """The rules of a text, read as the file of this name would be, and its default if it names one."""
    file = Path(name)
    try:
        return _rules_in(_READERS[file.suffix](text), file)
    except Unreadable as error:
        raise _invalid(file, [error.fault]) from None


def _rules_in(located: Located, file: Path) -> tuple[tuple[Rule, ...], Decision | None]:
    mistakes: list[Mistake] = []
    value = located.value
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        default = _default(members, mistakes)
        reader = RuleReader(("rules",), mistakes)
        rules = reader.rules(members["rules"]) if "rules" in members else ()
    else:
        default, reader = None, RuleReader((), mistakes)
        rules = reader.rules(value)
    faults = [*located.faults, *(Fault(located.line_of(each.path), str(each)) for each in mistakes)]
    if faults:
        raise _invalid(file, faults)
    found = FileRules(rules)
    found.where = tuple(f"{file}:{located.line_of((*reader.base, place))}" for place in range(len(rules)))
    return found, default


def _located(file: Path) -> Located:
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise InvalidPolicy(
            [f"{file}: a policy file ends in {', '.join(_READERS)}, not in {file.suffix!r}"], str(file)
        )
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise InvalidPolicy([f"{file}: cannot be read: {error.strerror}"], str(file)) from error
    try:
        return reader(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Unreadable(raw.count(b"\n", 0, error.start) + 1, "this is no UTF-8") from None


def _default(members: Mapping[Any, Any], mistakes: list[Mistake]) -> Decision | None:
    mistakes.extend(_key_mistakes(members))
    raw = members.get("default")
    if "default" not in members:
        return None
    if isinstance(raw, str) and raw in _WORDS:
        return _WORDS[raw]
    if not isinstance(raw, Mapping):
        sentence = f"default is one of {', '.join(_WORDS)}, or an object with allowed and requires_approval"
        mistakes.append(Mistake(("default",), None, sentence))
        return None
    try:
        return Decision.of(cast("Mapping[str, Any]", raw))
    except InvalidPolicy as error:
        mistakes.extend(Mistake(("default",), None, f"default: {problem}") for problem in error.problems)
        return None


def _key_mistakes(members: Mapping[Any, Any]) -> Iterator[Mistake]:
    for key in members:
        if key not in _KEYS:
            yield Mistake((key,), None, f"a policy file has no {key!r}; it has {' and '.join(_KEYS)}")
    if "rules" not in members:
        yield Mistake((), None, "a policy file needs rules: a list of them")


def _invalid(file: Path, faults: list[Fault]) -> InvalidPolicy:
    ordered = sorted(faults, key=lambda fault: fault.line)
    lines = [fault.line for fault in ordered]
    return InvalidPolicy([f"{file}:{fault.line}: {fault.sentence}" for fault in ordered], str(file), lines)
