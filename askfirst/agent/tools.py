"""Tools: functions that a model may call, their results, and their parameters as a pydantic model."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, cast, get_args, get_type_hints, overload

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import from_json, to_json

from askfirst.agent.emitter import Emitter, call_on
from askfirst.digests import canonical_json
from askfirst.display import Display, Risk
from askfirst.errors import InvalidTool
from askfirst.events import ToolProgressEvent
from askfirst.json_schema import bare_schema
from askfirst.messages import FilePart, ImagePart, JsonObject, TextPart, UnknownPart, check_depth
from askfirst.models.base import ToolSchema
from askfirst.requests import approval_seconds
from askfirst.wording import Wording

# Sets in a fixed order: Python's order differs between processes, and digests have to be equal.


@lru_cache(1024)
def _has_sets(model: type[BaseModel]) -> bool:
    try:
        return "'uniqueItems': True" in repr(model.model_json_schema())
    except PydanticUserError:  # a type without a JSON form; no tool accepts such a model
        return False


def _beside(value: Any, shown: Any) -> Any:
    """A model's JSON form as it is ``shown``, with its sets sorted."""
    if isinstance(value, set | frozenset) and isinstance(shown, list):
        return sorted(cast("list[Any]", shown), key=canonical_json)
    if isinstance(value, Mapping) and isinstance(shown, dict):
        parts, entries = list(cast("Mapping[Any, Any]", value).values()), cast(JsonObject, shown)
        if len(parts) != len(entries):  # two keys have the same JSON form
            return entries
        return {key: _beside(part, each) for part, (key, each) in zip(parts, entries.items(), strict=True)}
    if isinstance(value, list | tuple) and isinstance(shown, list):
        pairs = zip(cast("list[Any]", value), cast("list[Any]", shown), strict=True)
        return [_beside(part, each) for part, each in pairs]
    return shown


# From a function's signature and docstring to a pydantic model of its parameters.


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's parameters as a model, and how the model's fields become arguments again."""

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
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for place, (parameter, name) in enumerate(self.fields):
            value = context if name is None else getattr(args, name)
            if place < self.positional:
                positional.append(value)
            else:
                keywords[parameter] = value
        return positional, keywords


def name_of(function: Callable[..., Any]) -> str:
    """A function's name; for a callable object its class's, for a partial that of the wrapped function."""
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
    """The function itself, or the one that a partial wraps."""
    return cast("partial[Any]", function).func if isinstance(function, partial) else function


def _bound(function: Callable[..., Any]) -> Set[str]:
    """The keyword parameters that a partial has bound."""
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
    """The description, and the description of each parameter."""
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


Effect = Literal["once", "idempotent", "none"]
ExecutionMode = Literal["parallel", "sequential"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARTS = (TextPart, ImagePart, FilePart, UnknownPart)


def idempotency_key(thread_id: str, tool_call_id: str, begun_in: str) -> str:
    """The same for a call at every attempt; ``begun_in`` is the run's lasting id, empty on an old thread."""
    parts = (thread_id, tool_call_id, *((begun_in,) if begun_in else ()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool's body may know about its call; the body gets it by a parameter of this type."""

    thread_id: str
    run_id: str
    tool_call_id: str
    tool_name: str
    attempt: int
    """1, or more if the call was interrupted before and is run again."""
    signal: asyncio.Event
    """Set when the run is aborted; a long body in a thread looks at ``signal.is_set()`` now and then."""
    _emitter: Emitter = field(repr=False)
    _loop: asyncio.AbstractEventLoop = field(repr=False)
    _begun_in: str = field(default="", repr=False)
    """The run's lasting id, which tells this call from one on a deleted thread of the same name."""

    @property
    def idempotency_key(self) -> str:
        """The same for this call whatever happens, and different for every other call.

        Hand it to APIs that accept such a key, and a repeated attempt has no second effect. It is short and
        plain enough for an HTTP header.
        """
        return idempotency_key(self.thread_id, self.tool_call_id, self._begun_in)

    def report(self, progress: float | str, text: str = "") -> None:
        """Tell listeners of the body's progress: a fraction from 0 to 1, a text, or both; from any thread."""
        fraction = None
        if isinstance(progress, str):
            text = progress
        elif not math.isnan(progress):
            fraction = min(max(float(progress), 0.0), 1.0)
        call_on(self._loop, self._post, fraction, text)

    def _post(self, fraction: float | None, text: str) -> None:
        self._emitter.post(
            ToolProgressEvent,
            self.run_id,
            tool_call_id=self.tool_call_id,
            tool_name=self.tool_name,
            fraction=fraction,
            text=text,
        )


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a body may return if it has more to return than content.

    ``content`` is what the model sees: a string, JSON, a pydantic model or content parts. ``details`` is
    kept in the transcript for people and programs and is not sent to the model.
    """

    content: Any
    details: Mapping[str, Any] | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A tool by hand: a pydantic model of its parameters, and a function (async or not) of an instance.

    The function is called with the validated model, and with a `ToolContext` if it takes a second
    parameter. A function that is not async runs in a thread. To make one from a plain function, use
    `tool`.

    ``effect`` says what running the body twice would do: ``"once"`` (the default) harm, so it is never
    repeated without a person; ``"idempotent"`` nothing more, given the same idempotency key; ``"none"``
    nothing at all. ``execution_mode="sequential"`` keeps other calls of the same message from running at
    the same time. ``requires_approval`` makes every call wait for a person, for ``approval_timeout`` (seconds, or a
    text such as ``"24h"``) if that is given: then it is denied.
    """

    name: str
    parameters: type[BaseModel]
    function: Callable[..., Any]
    description: str = ""
    toolset: str = "default"
    requires_approval: bool = False
    effect: Effect = "once"
    execution_mode: ExecutionMode = "parallel"
    approval_timeout: float | str | None = None
    display: Display = field(default_factory=Display, repr=False)
    """How a call is shown to the person who decides: see `askfirst.display.Display`."""
    schema: ToolSchema = field(init=False, repr=False)
    """The tool's description for models."""
    _words: JsonObject | None = field(init=False, repr=False)
    """The words for every call, if they are the same for each."""
    args_schema: JsonObject | None = field(init=False, repr=False)
    """The schema that goes with a request, so that edits can be checked where the tool is unknown."""
    _call: Callable[[BaseModel, ToolContext], Any] = field(init=False, repr=False)
    _is_async: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not (isinstance(self.parameters, type) and issubclass(self.parameters, BaseModel)):
            raise InvalidTool(self.name, f"its parameters are a pydantic model, not {self.parameters!r}")
        for option, value, allowed in (
            ("effect", self.effect, ("once", "idempotent", "none")),
            ("execution_mode", self.execution_mode, ("parallel", "sequential")),
        ):
            if value not in allowed:
                raise InvalidTool(self.name, f"{option} is one of {', '.join(allowed)}, not {value!r}")
        try:
            object.__setattr__(self, "approval_timeout", approval_seconds(self.approval_timeout))
        except ValueError as error:
            raise InvalidTool(self.name, str(error)) from None
        if _yields(self.function):
            raise InvalidTool(
                self.name, "it is a generator: no model can take its values one by one; return them"
            )
        object.__setattr__(self, "schema", ToolSchema(self.name, self.description, _schema(self)))
        object.__setattr__(self, "args_schema", bare_schema(self.schema.parameters))
        self.display.check(self.name, argument_names(self.parameters))
        object.__setattr__(self, "display", described(self.display, self.parameters, self.description))
        object.__setattr__(
            self, "_words", self.display.shown({}, self.effect) if self.display.is_fixed else None
        )
        object.__setattr__(self, "_call", _by_model(self))
        object.__setattr__(self, "_is_async", inspect.iscoroutinefunction(self.function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, without the agent."""
        return self.function(*args, **kwargs)

    def words_for(self, args: Mapping[str, Any]) -> JsonObject | None:
        """The words for a call with these arguments, for its request."""
        return self._words or self.display.shown(args, self.effect)

    async def run(self, args: BaseModel, context: ToolContext) -> Any:
        """Run the body: in the event loop if it is async, else in a thread."""
        if self._is_async:
            return await self._call(args, context)
        returned = await asyncio.to_thread(_in_thread, self._call, args, context)
        return await returned if inspect.isawaitable(returned) else returned


WORDS = tuple(it.name for it in fields(Display) if it.name not in ("description", "hints"))
"""The options of a tool that say how its calls are shown."""


def display_of(words: Mapping[str, Any]) -> Display:
    """The words for a tool from options, of which None means: not given."""
    return Display(**{name: said for name, said in words.items() if said is not None})


def argument_names(parameters: type[BaseModel]) -> list[str]:
    """The names under which a call has its arguments."""
    return [it.serialization_alias or it.alias or name for name, it in parameters.model_fields.items()]


def described(display: Display, parameters: type[BaseModel], description: str) -> Display:
    """The words for a tool, with titles and formats of its parameters (``Field(title=…)``) where none are given, and
    with their descriptions."""
    labels: dict[str, str] = {}
    formats: dict[str, str] = {}
    hints: dict[str, str] = {}
    for name, each in parameters.model_fields.items():
        key = each.serialization_alias or each.alias or name
        if each.title:
            labels[key] = each.title
        if each.description:
            hints[key] = each.description
        extra = each.json_schema_extra
        form = cast("dict[str, Any]", extra).get("format") if isinstance(extra, dict) else None
        if isinstance(form, str):
            formats[key] = form
    return display.with_defaults(labels, formats, hints, description)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidTool(name, "a name is 1 to 64 letters, digits, underscores or hyphens")


def _yields(function: Any) -> bool:
    """Whether it is a generator function: calling it would run nothing."""
    forms = (function, type(function).__call__)
    return any(inspect.isgeneratorfunction(it) or inspect.isasyncgenfunction(it) for it in forms)


def _in_thread(call: Callable[[BaseModel, ToolContext], Any], args: BaseModel, context: ToolContext) -> Any:
    try:
        return call(args, context)
    except StopIteration as error:  # a future cannot carry StopIteration, so awaiting it would hang
        raise RuntimeError("the body raised StopIteration") from error


def _schema(tool: Tool) -> JsonObject:
    try:
        schema = tool.parameters.model_json_schema()
    except PydanticUserError as error:
        raise InvalidTool(tool.name, f"a parameter's type has no JSON form: {error.message}") from error
    # The title is the Python class's name, which is useless to a model.
    schema.pop("title", None)
    return schema


def _by_model(tool: Tool) -> Callable[[BaseModel, ToolContext], Any]:
    """How to call a hand-made tool's function, which takes the model and perhaps the context."""
    function = tool.function
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):  # one parameter, or a builtin without a signature
        return lambda args, _context: function(args)
    return lambda args, context: function(args, context)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    toolset: str = "default",
    requires_approval: bool = False,
    effect: Effect = "once",
    execution_mode: ExecutionMode = "parallel",
    approval_timeout: float | str | None = None,
    title: Wording | None = None,
    sentence: Wording | None = None,
    approve: Wording | None = None,
    done_sentence: Wording | None = None,
    labels: Mapping[str, Wording] | None = None,
    formats: Mapping[str, str] | None = None,
    important: Sequence[str] = (),
    risk: Risk | Callable[[Mapping[str, Any]], Risk] | None = None,
    consequences: Sequence[Wording] = (),
    undo: Wording | None = None,
    help_url: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function, async or not, a `Tool`: ``@tool`` or ``@tool(effect="none")``.

    The name is the function's; the description comes from its docstring; the parameters from its
    annotations (pydantic's included) and from the docstring's description of each. A parameter annotated
    `ToolContext` receives the call's context and is not shown to the model. The options are those of
    `Tool`, and of `askfirst.display.Display`: ``sentence="Pay back {cents:money:EUR} for order {order_id}"`` is what
    the person reads who decides. Raises `InvalidTool` for words that name an argument which is not there.
    """
    localns = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage]

    def decorate(decorated: Callable[..., Any]) -> Tool:
        return _from_function(decorated, localns, **options)

    return decorate if function is None else decorate(function)


def _from_function(
    function: Callable[..., Any],
    localns: Mapping[str, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Tool:
    if isinstance(function, Tool):
        raise InvalidTool(function.name, "is a tool already")
    named: str = name or name_of(function)
    _check_name(named)
    signature = read_signature(function, named, ToolContext, localns)
    words = {it: options.pop(it) for it in WORDS if it in options}
    if words:
        options["display"] = display_of(words)
    made = Tool(
        name=named,
        parameters=signature.parameters,
        function=function,
        description=signature.description if description is None else description,
        **options,
    )

    def call(args: BaseModel, context: ToolContext) -> Any:
        positional, keywords = signature.arguments(args, context)
        return function(*positional, **keywords)

    object.__setattr__(made, "_call", call)
    return made


def as_result(returned: Any) -> ToolResult:
    """What a body returned, as content parts and JSON details.

    The effect has happened, so this must not fail: a model that is told of an error would try again. A value without
    a JSON form is therefore written as its ``str``.
    """
    if not isinstance(returned, ToolResult):
        return ToolResult(_content(returned))
    details = None if returned.details is None else json_object(returned.details)
    return ToolResult(_content(returned.content), details, bool(returned.is_error))


def json_object(value: Any) -> JsonObject:
    """A mapping or a model as a JSON object; values without a JSON form are written as text."""
    try:
        plain: Any = value
        if not isinstance(plain, BaseModel | dict) and isinstance(plain, Mapping):
            plain = dict(cast("Mapping[Any, Any]", plain))
        encoded = to_json(plain, fallback=str, inf_nan_mode="strings")
        check_depth(encoded, within=24)  # it may become a part of a larger value with the same limit
        parsed: Any = from_json(encoded)
        if parsed.__class__ is not dict:
            return {"text": _text(value)}
        if isinstance(value, BaseModel) and _has_sets(type(value)):
            return _beside(value.model_dump(by_alias=True, warnings=False), parsed)
        return parsed
    except Exception:
        return {"text": _text(value)}


def _content(value: Any) -> tuple[Any, ...]:
    if isinstance(value, _PARTS):
        return (value,)
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        if items and all(isinstance(item, _PARTS) for item in items):
            return tuple(items)
    return (TextPart.of_valid(text=_text(value)),)


def _text(value: Any) -> str:
    """A string unchanged, another value as JSON, or as its ``str`` if it has no JSON form."""
    try:
        text = value if isinstance(value, str) else _json(value)
    except Exception:  # an object whose ``str`` or serializer raises
        text = f"<{type(value).__name__}>"
    return text.encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    try:
        return to_json(value, fallback=str, inf_nan_mode="constants").decode()
    except Exception:  # bytes that are not text, a circular reference, a lone surrogate
        return str(value)
