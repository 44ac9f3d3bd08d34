"""The form field that edits one value of a call: its control, the value as its text, and the text parsed again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, cast

from pydantic_core import from_json

from askfirst.formats import CODE, formatted
from askfirst.service.pages.inert_text import has_hidden
from askfirst.service.pages.subject import differ, is_number, text_of

Control = Literal[
    "text",
    "lines",
    "number",
    "money",
    "date",
    "boolean",
    "choice",
    "items",
    "secret",
    "json",
    "tree",
    "large",
    "fixed",
]

LONGEST = 50_000
"""A longer value cannot be edited: a browser takes many seconds to lay out its field."""
_MOST_ITEMS = 200
_MOST_LEAVES = 100
_DEEPEST = 6
"""A larger or deeper value is edited as JSON, if at all."""
_MOST_OPTIONS = 200
_MOST_REFERENCES = 8
_AMOUNT = re.compile(r"-?(?:\d+|\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+)(?:\.\d*)?")
_NOWHERE: Mapping[str, Any] = {}


class Unread(str):
    """A text that could not be parsed; it is shown to the person again."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """The field for a value. ``options`` are those of a choice. With ``may_be_null`` an empty text means null."""

    control: Control
    form: str = ""
    options: tuple[Any, ...] = ()
    may_be_null: bool = False


def kind_of(original: Any, form: str, schema: Mapping[str, Any]) -> Kind:
    """The field for a value: by its author's format, then by the tool's schema, then by the value itself."""
    kind = form.partition(":")[0]
    if kind == "secret":
        return Kind("secret", form)
    options = _options(original, schema)
    if options:
        return Kind("choice", form, options)
    if isinstance(original, bool):
        return Kind("boolean")
    if isinstance(original, int | float):
        return Kind("money" if kind == "money" and formatted(original, form) is not None else "number", form)
    if isinstance(original, list | dict):
        return _for_many(original, schema)
    if original is None:
        return _for_null(schema)
    if has_hidden(original):
        return Kind("json")  # in a field of plain text, hidden characters would be hidden, or lost
    if "date" in (kind, schema.get("format")) and formatted(original, "date") is not None:
        return Kind("date")
    return Kind("lines" if "\n" in original or len(original) > 40 or kind in CODE else "text", form)


def _for_many(original: Any, schema: Mapping[str, Any]) -> Kind:
    """The field for an object or a list: a line for each plain value, otherwise a tree of fields."""
    if not original and isinstance(original, dict):
        return Kind("json")
    if isinstance(original, list):
        given = cast("list[Any]", original)
        if _is_plain_list(given) or (not given and _types(schema.get("items")) <= {"string"}):
            return Kind("items")
    return Kind("tree" if original and is_tree(original) else "large")


def _for_null(schema: Mapping[str, Any]) -> Kind:
    """The field for a null: an empty field of the type that the schema allows besides null."""
    types = _types(schema) - {"null"}
    if types == {"string"}:
        return Kind("text", may_be_null=True)
    if types and types <= {"number", "integer"}:
        return Kind("number", may_be_null=True)
    return Kind("choice", options=(None, True, False)) if types == {"boolean"} else Kind("json")


def _options(original: Any, schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of a schema's ``enum``; none if it has none, or if the original value is not among them."""
    given: Any = schema.get("enum")
    if not isinstance(given, list) or not 0 < len(cast("list[Any]", given)) <= _MOST_OPTIONS:
        return ()
    options = list(cast("list[Any]", given))
    if schema.get("nullable") and None not in options:
        options.append(None)
    plain = all(it is None or isinstance(it, str | int | float) for it in options)
    return tuple(options) if plain and _place(options, original) is not None else ()


def _place(options: Sequence[Any], value: Any) -> int | None:
    """The index of a value among the options, compared as JSON: 1 is not true."""
    return next((at for at, it in enumerate(options) if not differ({"": it}, {"": value})), None)


def _types(schema: Any) -> set[str]:
    """The types that a schema names."""
    if not isinstance(schema, Mapping):
        return set()
    given: Any = cast("Mapping[str, Any]", schema).get("type")
    many = cast("list[Any]", given) if isinstance(given, list) else [given]
    return {it for it in many if isinstance(it, str)}


def _within(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object within a schema; empty for anything else, because a schema is untrusted."""
    found: Any = schema.get(name)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else _NOWHERE


def resolved(schema: Any, root: Mapping[str, Any], left: int = _MOST_REFERENCES) -> Mapping[str, Any]:
    """A schema with its references resolved. If it also allows null, it gets the field ``nullable``.

    At most ``left`` references and alternatives are followed.
    """
    for used in range(left):
        if not isinstance(schema, Mapping):
            return _NOWHERE
        given = cast("Mapping[str, Any]", schema)
        many: Any = given.get("anyOf") or given.get("oneOf")
        if isinstance(ref := given.get("$ref"), str) and ref.startswith("#/$defs/"):
            schema = _within(root, "$defs").get(ref.removeprefix("#/$defs/"))
        elif isinstance(many, list):
            others = [it for it in cast("list[Any]", many) if it != {"type": "null"}]
            if len(others) != 1:
                return _NOWHERE
            inner = dict(resolved(others[0], root, left - used - 1))
            if len(others) < len(cast("list[Any]", many)):
                inner |= {"nullable": True, "type": [*sorted(_types(inner)), "null"]}
            return inner
        else:
            return given
    return _NOWHERE


def inside(schema: Mapping[str, Any], name: str | None, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a value within an object, or, without a name, within a list."""
    if name is None:
        return resolved(schema.get("items"), root)
    return resolved(_within(schema, "properties").get(name), root)


def _is_plain_list(given: list[Any]) -> bool:
    """Whether a list can be edited as one line for each item without loss: plain texts or numbers, and not empty."""
    if not 0 < len(given) <= _MOST_ITEMS:
        return False
    if all(is_number(it) for it in given):
        return True
    return all(
        isinstance(it, str) and it.strip() and it == it.strip() and "\n" not in it and not has_hidden(it)
        for it in given
    )


def is_tree(value: Any) -> bool:
    """Whether a value is small and flat enough for a tree with a field for each inner value."""
    level: list[Any] = [value]
    leaves = 0
    for _ in range(_DEEPEST):
        inner = [it for each in level for _, it in children(each)]
        leaves += len(inner)
        if leaves > _MOST_LEAVES:
            return False
        level = [it for it in inner if isinstance(it, dict | list)]
        if not level:
            return all(len(text) <= LONGEST for text in _texts(value))
    return False


def _texts(value: Any) -> Iterator[str]:
    """Every string in a value, and every name on the way to it, because each field of a tree has these names."""
    if isinstance(value, str):
        yield value
    for name, inner in children(value):
        yield name or ""
        yield from _texts(inner)


def children(value: Any) -> list[tuple[str | None, Any]]:
    """The values directly inside an object or a list, each with its name; None as the name in a list."""
    if isinstance(value, dict):
        return list(cast("dict[str | None, Any]", value).items())
    return [(None, it) for it in cast("list[Any]", value)] if isinstance(value, list) else []


# A value as text, and back.


def unit_of(kind: Kind) -> str:
    """The unit that is shown after a number; empty if there is none."""
    name, _, more = kind.form.partition(":")
    return "%" if name == "percent" else more if name == "amount" else ""


def text_in(kind: Kind, value: Any) -> str:
    """A value as its field's text. A secret is not sent to a browser: its field is empty, which means unchanged."""
    if kind.control in ("secret", "large"):
        return ""
    if isinstance(value, Unread):
        return value
    if kind.control == "choice":
        place = _place(kind.options, value)
        return "" if place is None else str(place)
    if value is None and kind.may_be_null:
        return ""
    if isinstance(value, str) and kind.control in ("text", "lines", "date"):
        return value
    if kind.control == "money" and (said := formatted(value, kind.form)) is not None:
        return said.removesuffix(kind.form.partition(":")[2]).strip().replace(",", "")
    if kind.control == "items" and isinstance(value, list):
        return "\n".join(text_of(it) for it in cast("list[Any]", value))
    plain = json.dumps(value, indent=2, ensure_ascii=False)
    return json.dumps(value, indent=2) if has_hidden(plain) else plain


def value_in(kind: Kind, original: Any, text: str) -> Any:
    """The value of a field's text; raises ``ValueError`` with the fault."""
    if kind.may_be_null and not text.strip():
        return None
    if kind.control in ("text", "lines", "date", "secret"):
        return lines_in(text)
    if kind.control in ("choice", "boolean"):
        return _chosen(kind, text)
    if kind.control == "money":
        return _minor_units(text, kind.form)
    if kind.control == "items":
        return _items(cast("list[Any]", original), text)
    try:
        value = json_in(text.strip())
    except ValueError:
        raise ValueError("must be a number" if kind.control == "number" else "is not JSON") from None
    if kind.control == "number" and not is_number(value):
        raise ValueError("must be a number")
    return value


def _chosen(kind: Kind, text: str) -> Any:
    if kind.control == "boolean":
        if text not in ("true", "false"):
            raise ValueError("must be true or false")
        return text == "true"
    if not (text.isdecimal() and len(text) < 4 and int(text) < len(kind.options)):
        raise ValueError("must be one of the options")
    return kind.options[int(text)]


def _minor_units(text: str, form: str) -> int:
    """An amount as people write it, converted to whole minor units, such as cents."""
    written = text.strip().removesuffix(form.partition(":")[2]).strip()
    if not _AMOUNT.fullmatch(written):
        raise ValueError("must be a number")
    digits = next(count for count in (2, 0, 3) if formatted(10**count, form) == _one(count, form))
    try:
        minor = Decimal(written.replace(",", "").replace(" ", "")).scaleb(digits)
    except InvalidOperation:
        raise ValueError("must be a number") from None
    if not is_number(int(minor)):
        raise ValueError("must be a number")
    if minor != minor.to_integral_value():
        raise ValueError(f"must have at most {digits} digits behind the point")
    return int(minor)


def _one(digits: int, form: str) -> str:
    """How one unit of a currency is formatted if it has this many decimals."""
    point = f".{'0' * digits}" if digits else ""
    return f"1{point} {form.partition(':')[2]}".rstrip()


def _items(original: list[Any], text: str) -> list[Any]:
    lines = [line.strip() for line in lines_in(text).split("\n") if line.strip()]
    if not original or not all(is_number(it) for it in original):
        return lines
    try:
        numbers = [json_in(line) for line in lines]
    except ValueError:
        raise ValueError("must be a number") from None
    if not all(is_number(it) for it in numbers):
        raise ValueError("must be a number")
    return numbers


def json_in(text: str) -> Any:
    """The value of a JSON text; raises ``ValueError`` for invalid JSON.

    Also for numbers such as 1e400, which Python would read as infinity.
    """
    value = from_json(text, allow_inf_nan=False)
    waiting = [value]
    while waiting:
        it = waiting.pop()
        if isinstance(it, float) and math.isinf(it):
            raise ValueError("has a number that JSON cannot hold")
        waiting += [inner for _, inner in children(it)]
    return value


def lines_in(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def blank(value: Any) -> Any:
    """An empty value of the same type: an empty text, 0, false, an empty list, or an object of empty values."""
    if isinstance(value, dict):
        return {name: blank(it) for name, it in cast("dict[str, Any]", value).items()}
    if isinstance(value, bool) or value is None:
        return False if value is not None else None
    return [] if isinstance(value, list) else 0 if is_number(value) else ""
