"""From a function's signature and docstring to a pydantic model of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, cast, get_args, get_type_hints

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from assent.errors import InvalidTool


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes: a parameter model, and how its fields become arguments again."""

    description: str
    parameters: type[BaseModel]
    fields: tuple[tuple[str, str | None], ...]
    """(parameter, field) pairs; the names differ only where the parameter's is taken on every model.

    A parameter without a field receives the context.
    """
    positional: int
    """How many of them are positional-only; these come first."""

    def arguments(self, args: BaseModel, context: object) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments to call the function with."""
        values = [
            (parameter, context if field is None else getattr(args, field))
            for parameter, field in self.fields
        ]
        return [value for _, value in values[: self.positional]], dict(values[self.positional :])


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called; a callable object goes by its class, a partial by what it wraps."""
    written = _written(function)
    return getattr(written, "__name__", type(written).__name__)


def read_signature(
    function: Callable[..., Any], name: str, context_type: type, localns: Mapping[str, Any]
) -> Signature:
    """Read a function; parameters annotated with ``context_type`` are left out of the model, and so are
    those that a partial has bound.

    Descriptions come from ``Field(description=...)`` or else from the docstring (Google, NumPy, Sphinx
    and Epydoc styles). Raises `InvalidTool` for what no model could call.
    """
    description, documented = _read_docstring(inspect.getdoc(_written(function)) or "")
    hints = _hints(_written(function), name, localns)
    bound = _bound(function)
    parameters = inspect.signature(function).parameters
    definitions: dict[str, Any] = {}
    fields: list[tuple[str, str | None]] = []
    positional = 0
    for parameter in parameters.values():
        if parameter.name in bound:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidTool(
                name, f"parameter {parameter} has no fixed name; spell out what the model may pass"
            )
        positional += parameter.kind is parameter.POSITIONAL_ONLY
        if parameter.annotation is parameter.empty and parameter.name not in hints:
            raise InvalidTool(
                name,
                f"parameter {parameter.name!r} has no annotation, so no model could know what to pass; "
                f"say what it takes, such as {parameter.name}: str",
            )
        annotation = hints.get(parameter.name, Any)
        if annotation is context_type or context_type in get_args(annotation):
            fields.append((parameter.name, None))
            continue
        field = _field_name(parameter.name, {*parameters, *definitions})
        fields.append((parameter.name, field))
        said = documented.get(parameter.name)
        definitions[field] = _field(annotation, parameter, said, alias=field != parameter.name)
    return Signature(description, _model(name, definitions), tuple(fields), positional)


def _written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that somebody wrote: what a partial wraps."""
    return cast("partial[Any]", function).func if isinstance(function, partial) else function


def _bound(function: Callable[..., Any]) -> Set[str]:
    """The parameters that a partial has named and filled."""
    return cast("partial[Any]", function).keywords.keys() if isinstance(function, partial) else frozenset()


def _field_name(parameter: str, taken: Set[str]) -> str:
    """The parameter's own name, unless every pydantic model has an attribute of that name."""
    if not (hasattr(BaseModel, parameter) or parameter.startswith("_")):
        return parameter
    name = f"{parameter.strip('_')}_argument".lstrip("_")
    while name in taken:
        name += "_"
    return name


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and what is said of each parameter."""
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    described = [part for part in (parsed.short_description, parsed.long_description) if part]
    return "\n\n".join(described), {param.arg_name: param.description or "" for param in parsed.params}


def _hints(function: Callable[..., Any], name: str, localns: Mapping[str, Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target, localns=dict(localns), include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidTool(name, f"an annotation cannot be resolved: {error}") from error


def _field(
    annotation: Any, parameter: inspect.Parameter, said: str | None, *, alias: bool
) -> tuple[Any, Any]:
    default: Any = ... if parameter.default is parameter.empty else parameter.default
    extra: dict[str, Any] = {"alias": parameter.name} if alias else {}
    given = default if isinstance(default, FieldInfo) else FieldInfo.from_annotation(annotation)
    if said and not given.description:
        extra["description"] = said
    return (Annotated[annotation, Field(**extra)] if extra else annotation), default


def _model(name: str, definitions: dict[str, Any]) -> type[BaseModel]:
    try:
        return create_model(
            name, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **definitions
        )
    except PydanticUserError as error:
        raise InvalidTool(name, f"a parameter's type has no JSON form: {error.message}") from error
