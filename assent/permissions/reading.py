"""Reading rules from plain data, and naming everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from assent.errors import InvalidPolicy
from assent.permissions.constraints import TESTS, ArgConstraint, path_problems
from assent.permissions.rules import EFFECTS, Rule, Scope, effect_problems, name_problems, timeout_problems

Path = tuple[str | int, ...]

_RULE_KEYS = ("id", "principal", "scope", "effect", "approval_timeout")
_SCOPE_KEYS = ("toolset", "tool", "arg_constraints")


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong in plain data: where (a path of keys and places), in which rule, and what."""

    path: Path
    rule: str | None
    sentence: str

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.sentence}" if self.rule else self.sentence


def _none() -> list[Mistake]:
    return []


@dataclass(slots=True)
class RuleReader:
    """Reads a list of rules, gathering ``mistakes`` as it goes."""

    base: Path = ()
    """The path of the list itself."""
    mistakes: list[Mistake] = field(default_factory=_none)

    def rules(self, raw: Any) -> tuple[Rule, ...]:
        """The rules that are sound; with no mistakes, all of them."""
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

    path: Path
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
