"""A pydantic model as a form of its fields, and the answers as the model again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json, to_json

from askfirst.errors import HitlInvalidRequest
from askfirst.requests import AskRequest, Option, Question

M = TypeVar("M", bound=BaseModel)
_PLAIN = (str, int, float, bool)


def form(
    model: type[BaseModel],
    question: str,
    context: Mapping[str, Any] | None = None,
    problem: str | None = None,
) -> AskRequest:
    """The questions for a model, one for each field. ``problem`` says what was wrong with the last answer."""
    if not model.model_fields:
        raise HitlInvalidRequest(f"{model.__name__} has no fields to ask for")
    intro = question if not context else f"{question}\n\n{_context(context)}"
    if problem is not None:
        intro = f"{intro}\n\nThe last answer did not fit: {problem}"
    questions = [_question(name, field) for name, field in model.model_fields.items()]
    first = questions[0]
    questions[0] = first.model_copy(update={"prompt": f"{intro}\n\n{first.prompt}"})
    return AskRequest(questions=questions)


def _context(context: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else to_json(value, fallback=str).decode()}"
        for name, value in context.items()
    )


def _question(name: str, field: FieldInfo) -> Question:
    label = field.title or name.replace("_", " ").capitalize()
    prompt = f"{label} ({field.description})" if field.description else label
    kind, is_optional = _without_none(field.annotation)
    many = get_origin(kind) in (list, set, tuple, frozenset)
    options = _options(get_args(kind)[0] if many and get_args(kind) else kind)
    return Question(
        key=name,
        prompt=prompt,
        options=options,
        multi_select=many,
        required=field.is_required() and not is_optional,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, UnionType):
        kinds = [it for it in get_args(annotation) if it is not NoneType]
        if len(kinds) < len(get_args(annotation)):
            return (kinds[0] if len(kinds) == 1 else annotation), True
    return annotation, False


def _options(kind: Any) -> list[Option] | None:
    """The choices of a field with few possible values; None for a field that is typed."""
    if kind is bool:
        return [Option(label="Yes", value="true"), Option(label="No", value="false")]
    if get_origin(kind) is Literal:
        return [Option(label=str(it), value=str(it)) for it in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [Option(label=it.name.replace("_", " ").capitalize(), value=str(it.value)) for it in kind]
    return None


def read_form(model: type[M], answers: Mapping[str, Any]) -> M:
    """The answers as the model. Raises `ValueError` with a sentence that names each fault, and no value."""
    given = {
        name: _read(model.model_fields[name], said) for name, said in answers.items() if said not in ("", [])
    }
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        said = [f"{'.'.join(map(str, it['loc'])) or 'answer'}: {it['msg']}" for it in faults]
        raise ValueError("; ".join(said)) from None


def _read(field: FieldInfo, said: Any) -> Any:
    """The text of an answer as the field's value: parsed as JSON for lists and objects, else the text itself."""
    kind, _ = _without_none(field.annotation)
    if get_origin(kind) is Literal:
        return next((it for it in get_args(kind) if str(it) == said), said)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((it for it in kind if str(it.value) == said), said)
    has_parts = get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel))
    if isinstance(said, str) and has_parts:
        try:
            return from_json(said)
        except ValueError:
            return said
    return said
