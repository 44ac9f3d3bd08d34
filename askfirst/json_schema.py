"""Checking edited arguments against a tool's JSON Schema.

Values are checked as pydantic checks them: numbers may be written as text, dates have several forms, and a pattern is
matched in linear time. The tool itself checks what a schema cannot express, such as a validator in Python, before it
runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from pydantic_core import CoreSchema, SchemaError, SchemaValidator, ValidationError, core_schema, to_json

from askfirst.digests import canonical_json
from askfirst.errors import InvalidMessage
from askfirst.messages import JsonObject

Fault = tuple[tuple[str, ...], str]
"""A path into the arguments, from the argument's name inwards, and what is wrong there: ``must be at least 1``."""

MOST_BYTES = 2000
"""A larger schema is stored without its nested schemas, because every request stores the schema again."""
MOST_DEFAULTS = 4000
"""The defaults of all arguments together are stored if they take at most so many bytes."""

_BOUNDS = (
    "type",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
)
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "$defs")


def bare_schema(schema: Mapping[str, Any]) -> JsonObject | None:
    """The part of a tool's schema that goes with a request: what checks arguments, and the arguments' defaults, with
    which a page compares a call. None if even what checks is too large to store."""
    bare = _checking(schema)
    properties: Any = None if bare is None else bare.get("properties")
    if isinstance(properties, dict):
        for name, default in _defaults(schema.get("properties")).items():
            if isinstance(field := cast("dict[str, Any]", properties).get(name), dict):
                field["default"] = default
    return bare


def _defaults(properties: Any) -> JsonObject:
    """The defaults of arguments, without those that JSON cannot have, as infinity; none if they are too large: some
    of them would say that the others do not differ."""
    found: JsonObject = {}
    for name, it in cast("dict[str, Any]", properties if isinstance(properties, dict) else {}).items():
        if isinstance(it, dict) and "default" in it:
            try:
                canonical_json(it["default"])
            except InvalidMessage:
                continue
            found[name] = it["default"]
    return found if len(to_json(found)) <= MOST_DEFAULTS else {}


def _checking(schema: Mapping[str, Any]) -> JsonObject | None:
    """The part of a schema that is needed to check arguments; None if even that is too large to store."""
    bare = _bare(schema)
    if len(to_json(bare)) <= MOST_BYTES:
        return bare
    properties = cast("Mapping[str, Mapping[str, Any]]", bare.get("properties") or {})
    bare["properties"] = {
        name: {word: value for word, value in field.items() if word in _BOUNDS}
        for name, field in properties.items()
    }
    bare.pop("$defs", None)
    return bare if len(to_json(bare)) <= MOST_BYTES else None


def _bare(schema: Any) -> Any:
    """A schema without titles, descriptions, defaults and examples, all the way down."""
    if not isinstance(schema, Mapping):
        return schema  # true or false
    bare: dict[str, Any] = {}
    for word, value in cast("Mapping[str, Any]", schema).items():
        if word in _BOUNDS or word in ("$ref", "required"):
            bare[word] = value
        elif word in _LISTS:
            bare[word] = [_bare(each) for each in value]
        elif word in _MAPS:
            bare[word] = {name: _bare(each) for name, each in value.items()}
        elif word in ("items", "additionalProperties"):
            bare[word] = _bare(value)
    return bare


def schema_faults(
    schema: Mapping[str, Any], args: Mapping[str, Any], shown: Mapping[str, Any] | None = None
) -> list[Fault]:
    """The faults of arguments, each with its path, in sentences that quote no value.

    If the schema cannot be read, no fault is found: the tool still checks the arguments before it runs. An argument
    that equals the one ``shown`` to the person has no fault either: a mask, or an argument that is missing in both,
    stands for a value that fits.
    """
    try:
        validator = SchemaValidator(_with_definitions(schema))
    except (SchemaError, RecursionError, TypeError, ValueError, KeyError, AttributeError):
        return []
    try:
        validator.validate_python(dict(args))
    except ValidationError as error:
        faults = list(_faults(error))
        return faults if shown is None else [it for it in faults if not _is_as_shown(it[0], args, shown)]
    return []


def _is_as_shown(place: tuple[str, ...], args: Any, shown: Any) -> bool:
    """Whether both trees have the same value at a path, or none. The empty path stands for the whole tree."""
    if not place:
        return args == shown
    for step in place[:-1]:
        args, shown = _value_at(args, step), _value_at(shown, step)
    if _NOTHING in (args, shown):
        return False
    args, shown = _value_at(args, place[-1]), _value_at(shown, place[-1])
    return type(args) is type(shown) and args == shown


_NOTHING: Any = object()


def _value_at(tree: Any, step: str) -> Any:
    if isinstance(tree, Mapping):
        return cast("Mapping[str, Any]", tree).get(step, _NOTHING)
    if isinstance(tree, list) and step.isdecimal() and int(step) < len(cast("list[Any]", tree)):
        return cast("list[Any]", tree)[int(step)]
    return _NOTHING


def _faults(error: ValidationError) -> Iterator[Fault]:
    for fault in error.errors(include_url=False, include_input=False):
        kind, place = fault["type"], tuple(map(str, fault["loc"]))
        if kind in _WORDS:
            yield place, _WORDS[kind].format(**fault.get("ctx", {}))
        else:
            said = (words for beginning, words in _FAMILIES.items() if kind.startswith(beginning))
            yield place, next(said, "does not fit")


_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "literal_error": "must be one of {expected}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "does not have the expected form",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}
_FAMILIES = {
    "int_": "must be a whole number",
    "float_": "must be a number",
    "finite_": "must be a number",
    "bool_": "must be true or false",
    "string_": "must be text",
    "none_": "must be null",
    "list_": "must be a list",
    "tuple_": "must be a list",
    "dict_": "must be an object",
    "date_": "must be a date such as 2026-05-01",
    "datetime_": "must be a time such as 2026-05-01T10:00:00Z",
    "time_delta_": "must be a duration such as PT1H30M",
    "time_": "must be a time of day such as 10:00:00",
    "uuid_": "must be a UUID",
    "url_": "must be an address such as https://a.example",
}
"""The sentence for each family of faults, by the prefix of pydantic's names for them."""


def _with_definitions(schema: Mapping[str, Any]) -> CoreSchema:
    inner = _core_schema(schema)
    named = cast("Mapping[str, Any]", schema.get("$defs") or {})
    if not named:
        return inner
    definitions = [cast(CoreSchema, {**_core_schema(each), "ref": name}) for name, each in named.items()]
    return core_schema.definitions_schema(inner, definitions)


def _core_schema(schema: Any) -> CoreSchema:
    """The pydantic core schema that corresponds to a JSON Schema."""
    if not isinstance(schema, Mapping):
        return core_schema.any_schema()
    words = cast("Mapping[str, Any]", schema)
    if "$ref" in words:
        return core_schema.definition_reference_schema(words["$ref"].removeprefix("#/$defs/"))
    if "const" in words or "enum" in words:
        return core_schema.literal_schema([words["const"]] if "const" in words else list(words["enum"]))
    choices = words.get("anyOf") or words.get("oneOf")
    if choices:
        return _one_of(choices)
    if len(words.get("allOf") or ()) == 1:
        return _core_schema(words["allOf"][0])
    kind = words.get("type")
    if isinstance(kind, list):
        return _one_of([{**words, "type": each} for each in cast("list[Any]", kind)])
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    return core_schema.any_schema() if make is None else make(words)


def _one_of(choices: Sequence[Any]) -> CoreSchema:
    null = {"type": "null"}
    others: list[Any] = [_core_schema(each) for each in choices if each != null]
    inner: CoreSchema = others[0]
    if len(others) > 1:
        # One fault for the union: one sentence for each choice would be too many.
        inner = core_schema.union_schema(
            others, custom_error_type="no_choice", custom_error_message="does not fit"
        )
    return core_schema.nullable_schema(inner) if null in choices else inner


def _number(make: Any, words: Mapping[str, Any]) -> CoreSchema:
    return make(
        ge=words.get("minimum"),
        gt=words.get("exclusiveMinimum"),
        le=words.get("maximum"),
        lt=words.get("exclusiveMaximum"),
        multiple_of=words.get("multipleOf"),
    )


def _plain(make: Any, _: Mapping[str, Any]) -> CoreSchema:
    return make()


def _string(words: Mapping[str, Any]) -> CoreSchema:
    special = _FORMATS.get(words.get("format", ""))
    if special is not None:
        return special()
    if words.get("format") == "password":
        return core_schema.no_info_wrap_validator_function(_unless_masked, _text(words))
    return _text(words)


def _unless_masked(value: Any, validate: Any) -> Any:
    """A masked secret is not checked against the rules for its value."""
    return value if value == MASK else validate(value)


MASK = "*" * 10
"""The text that pydantic writes in place of a secret."""


def _text(words: Mapping[str, Any]) -> CoreSchema:
    bounds = {"min_length": words.get("minLength"), "max_length": words.get("maxLength")}
    try:
        SchemaValidator(core_schema.str_schema(pattern=words.get("pattern")))
    except SchemaError:  # a pattern that only Python's own engine supports
        return core_schema.str_schema(**bounds)
    return core_schema.str_schema(pattern=words.get("pattern"), **bounds)


def _array(words: Mapping[str, Any]) -> CoreSchema:
    bounds = {"min_length": words.get("minItems"), "max_length": words.get("maxItems")}
    if "prefixItems" in words:
        items = [_core_schema(each) for each in words["prefixItems"]]
        if words.get("maxItems") == len(items):
            return core_schema.tuple_schema(items)
        rest = [*items, _core_schema(words.get("items", True))]
        return core_schema.tuple_schema(rest, variadic_item_index=len(items), **bounds)
    return core_schema.list_schema(_core_schema(words.get("items", True)), **bounds)


def _object(words: Mapping[str, Any]) -> CoreSchema:
    more = words.get("additionalProperties", True)
    properties = cast("Mapping[str, Any]", words.get("properties") or {})
    if not properties and more is not False:
        return core_schema.dict_schema(core_schema.str_schema(), _core_schema(more))
    required = cast("Sequence[str]", words.get("required") or ())
    fields = {
        name: core_schema.typed_dict_field(_core_schema(each), required=name in required)
        for name, each in properties.items()
    }
    if more is False:
        return core_schema.typed_dict_schema(fields, extra_behavior="forbid")
    return core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=_core_schema(more))


_KINDS: Mapping[str, Any] = {
    "integer": partial(_number, core_schema.int_schema),
    "number": partial(_number, partial(core_schema.float_schema, allow_inf_nan=False)),
    "boolean": partial(_plain, core_schema.bool_schema),
    "null": partial(_plain, core_schema.none_schema),
    "string": _string,
    "array": _array,
    "object": _object,
}
_FORMATS: Mapping[str, Any] = {
    "date": core_schema.date_schema,
    "date-time": core_schema.datetime_schema,
    "time": core_schema.time_schema,
    "duration": core_schema.timedelta_schema,
    "uuid": core_schema.uuid_schema,
    "uri": core_schema.url_schema,
}
