"""Policy files: rules and a default in YAML, TOML or JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from assent.errors import InvalidPolicy
from assent.permissions.decision import Decision
from assent.permissions.json_lines import read_json
from assent.permissions.located import Fault, Located, Unreadable
from assent.permissions.reading import Mistake, RuleReader
from assent.permissions.rules import Rule
from assent.permissions.toml_lines import read_toml
from assent.permissions.unreachable import FileRules
from assent.permissions.yaml_lines import read_yaml

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
        located = _located(file)
    except Unreadable as error:
        raise _invalid(file, [error.fault]) from None
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
