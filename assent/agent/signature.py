"""From a function's signature and docstring to a pydantic model of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

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
    fields: tuple[tuple[str, str], ...]
    """(parameter, field) pairs; they differ only where a parameter's name is taken on every model."""
    positional: int
    """How many of them are positional-only; these come first."""
    context: str | None
    """The parameter that receives the context, if there is one."""

    def arguments(self, args: BaseModel, context: object) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments to call the function with."""
        values = [(parameter, getattr(args, field)) for parameter, field in self.fields]
        keywords = dict(values[self.positional :])
        if self.context is not None:
            keywords[self.context] = context
        return [value for _, value in values[: self.positional]], keywords


def read_signature(
    function: Callable[..., Any], name: str, context_type: type, localns: Mapping[str, Any]
) -> Signature:
    """Read a function; parameters annotated with ``context_type`` are left out of the model.

    Descriptions come from ``Field(description=...)`` or else from the docstring (Google, NumPy, Sphinx
    and Epydoc styles). Raises `InvalidTool` for what no model could call.
    """
    description, documented = _read_docstring(inspect.getdoc(function) or "")
    hints = _hints(function, name, localns)
    definitions: dict[str, Any] = {}
    fields: list[tuple[str, str]] = []
    positional, context = 0, None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidTool(
                name, f"parameter {parameter} has no fixed name; spell out what the model may pass"
            )
        annotation = hints.get(parameter.name, Any)
        if annotation is context_type or context_type in get_args(annotation):
            context = parameter.name
            continue
        taken = hasattr(BaseModel, parameter.name) or parameter.name.startswith("_")
        field = f"{parameter.name.strip('_')}_argument" if taken else parameter.name
        fields.append((parameter.name, field))
        positional += parameter.kind is parameter.POSITIONAL_ONLY
        definitions[field] = _field(annotation, parameter, documented.get(parameter.name), alias=taken)
    return Signature(description, _model(name, definitions), tuple(fields), positional, context)


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
        return create_model(name, __config__=ConfigDict(extra="forbid"), **definitions)
    except PydanticUserError as error:
        raise InvalidTool(name, f"a parameter's type has no JSON form: {error.message}") from error
