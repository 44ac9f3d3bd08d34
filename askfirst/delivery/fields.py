"""Fields that a person fills in within a message: arguments to edit, a form, a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

FieldKind = Literal["text", "lines", "number", "integer", "yes_no", "choice", "choices", "date", "json"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its key in the answer, its label, the kind of its value, and its initial value."""

    key: str
    label: str
    kind: FieldKind = "text"
    value: Any = None
    options: tuple[tuple[str, str], ...] = ()
    """Value and label of each choice."""
    is_required: bool = False
    hint: str | None = None

    def stored(self) -> dict[str, Any]:
        """The field as JSON, for `read`."""
        return asdict(self)

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Field:
        """A field from the JSON of `stored`."""
        options = tuple((str(value), str(label)) for value, label in stored["options"])
        more: dict[str, Any] = {**stored, "options": options}
        return cls(**more)

    def parse(self, given: Any) -> Any:
        """The entered value as its JSON type; None if it is empty. Raises ``ValueError`` with a sentence."""
        if given is None or given == "":
            return None
        if self.kind in ("number", "integer"):
            return _number(str(given), whole=self.kind == "integer")
        if self.kind == "yes_no":
            return given == "yes"
        if self.kind == "json":
            return _json(str(given))
        return given


def _number(text: str, *, whole: bool) -> int | float:
    try:
        return int(text) if whole or text.strip().lstrip("-").isdigit() else float(text)
    except ValueError:
        raise ValueError("Enter a whole number." if whole else "Enter a number.") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError('Enter JSON, such as [1, 2] or {"a": 1}.') from None


REASON = Field("feedback", "Why?", "lines")
"""The field for the reason of a rejection."""


def schema_fields(
    schema: Mapping[str, Any] | None, args: Mapping[str, Any], labels: Mapping[str, str]
) -> tuple[Field, ...]:
    """The fields to edit a call's arguments. The kind of a field follows from the argument's schema and value."""
    known: Mapping[str, Any] = (schema or {}).get("properties") or {}
    required: Sequence[str] = (schema or {}).get("required") or ()
    return tuple(
        _argument(name, value, known.get(name) or {}, labels.get(name) or name, name in required)
        for name, value in args.items()
    )


def _argument(name: str, value: Any, schema: Mapping[str, Any], label: str, is_required: bool) -> Field:
    choices: list[Any] = schema.get("enum") or []
    if choices and all(isinstance(each, str) for each in choices):
        options = tuple((each, each) for each in choices)
        return Field(name, label, "choice", value, options, is_required)
    kind = _kind(value, schema.get("type"))
    shown = json.dumps(value, ensure_ascii=False, indent=2) if kind == "json" and value is not None else value
    return Field(name, label, kind, shown, is_required=is_required)


def _kind(value: Any, type_: Any) -> FieldKind:
    if isinstance(value, bool):
        return "yes_no"
    if isinstance(value, int) and type_ != "number":
        return "integer"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "lines" if "\n" in value or len(value) > 80 else "text"
    return "json"
