"""The transcript: messages, their parts, and their JSON.

A transcript is a list of messages that only ever grows at its end. The encoding is plain JSON, one
object a message, told apart by ``role`` (messages) and ``type`` (parts). Fields and parts that a newer
version wrote are kept unchanged, so that an older version passes them on.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    StringConstraints,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticSerializationError, core_schema, from_json, to_json

from askfirst.digests import call_digest as call_digest
from askfirst.digests import canonical_json as canonical_json
from askfirst.errors import InvalidMessage

# JSON and text of a transcript: every accepted value can be written and read back.


Text = Annotated[str, StringConstraints(min_length=0)]
"""A string that is valid Unicode. The constraint allows any length; with it, pydantic refuses lone surrogates."""


class _Encodable:
    """Checks that a value made in Python can be written as JSON and decoded again. Parsed JSON is not checked
    again."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        checked = core_schema.no_info_after_validator_function(_encodable, schema)
        return core_schema.json_or_python_schema(schema, checked)


def _encodable(value: Any) -> Any:
    """Refuse lone surrogates (in keys, too) and nesting that is too deep for the parser."""
    check_depth(to_json(value, inf_nan_mode="constants"))
    return value


def check_depth(encoded: bytes, within: int = 16) -> None:
    """Raise ``ValueError`` for JSON that is too deep to be parsed once it is nested ``within`` levels deeper."""
    if encoded.count(b"[") + encoded.count(b"{") > _SURELY_SHALLOW:
        from_json(b"[" * within + encoded + b"]" * within)


_SURELY_SHALLOW = 100
"""JSON with at most this many brackets cannot be too deep: the parser's limit is twice as many levels."""


JsonObject = Annotated[dict[str, JsonValue], _Encodable()]


# The base classes of values: `Made` is quick to construct, `Value` is the base of transcript values.


class Made(BaseModel):
    """The base of values that our own code constructs often, from fields that are known to be valid."""

    model_config = ConfigDict(defer_build=True)  # import stays quick; the first use of a type builds it

    @classmethod
    def of_valid(cls, **fields: Any) -> Self:
        """A value from valid fields, without validation or copies: ten times as fast as ``model_construct``."""
        value = cls.__new__(cls)
        _set(value, "__dict__", _defaults(cls) | fields)
        _set(value, "__pydantic_fields_set__", set(fields))
        _set(value, "__pydantic_extra__", {})
        _set(value, "__pydantic_private__", None)
        return value


_set = object.__setattr__


@cache
def _defaults(kind: type[Made]) -> dict[str, Any]:
    """All fields in their order, with their defaults."""
    return {name: field.default for name, field in kind.model_fields.items()}


_Init = TypeVar("_Init", bound=Callable[..., None])
_JSON_FIELDS = ("args", "details", "provider")


def plain_init(init: _Init) -> _Init:
    """Mark an ``__init__`` that adds only a signature and an error type to pydantic's own.

    Without the mark, pydantic would call the ``__init__`` for every value that it decodes, which is slow and not
    needed. If a later pydantic ignores the mark, decoding only gets slower.
    """
    cast(Any, init).__pydantic_base_init__ = True
    return init


class Value(Made):
    """The base of all transcript values: frozen; unknown fields are kept."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        ser_json_bytes="base64",
        ser_json_inf_nan="constants",  # written as NaN, not as null, so that `encode` can refuse it
        val_json_bytes="base64",
    )

    @plain_init
    def __init__(self, **fields: Any) -> None:
        try:
            self.__pydantic_validator__.validate_python(fields, self_instance=self)
        except ValidationError as error:
            raise invalid_value(error, error.errors(include_url=False)[0]["loc"]) from None


def invalid_value(error: ValidationError, loc: tuple[int | str, ...]) -> InvalidMessage:
    """The first of pydantic's errors as an `InvalidMessage`, with its location as a path."""
    more = error.error_count() - 1
    problem = error.errors(include_url=False)[0]["msg"] + (f" (and {more} more)" if more else "")
    return InvalidMessage(_path(loc), problem)


def _path(loc: tuple[int | str, ...]) -> str:
    """A location as a path into the data, without the union tags that pydantic puts between its steps."""
    path, is_tag, in_json = "", False, False
    for step in loc:
        if is_tag:
            is_tag = False
            continue
        is_tag = in_json or (isinstance(step, int) and path == ".content")
        in_json = in_json or step in _JSON_FIELDS
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


StopReason = Literal["end", "tool_use", "length", "aborted", "error"]


def _absent(value: object) -> bool:
    return value is None


# Parts: what a message is made of.


class TextPart(Value):
    """Text."""

    type: Literal["text"] = "text"
    text: Text
    provider: JsonObject | None = Field(default=None, exclude_if=_absent)
    """Data that the model's provider needs back with this part; opaque to everyone else."""

    @plain_init
    def __init__(self, text: str, **fields: Any) -> None:
        super().__init__(text=text, **fields)


class ThinkingPart(Value):
    """A model's thinking before its answer. ``signature`` is the provider's proof that the text is unaltered."""

    type: Literal["thinking"] = "thinking"
    text: Text
    signature: Text | None = Field(default=None, exclude_if=_absent)
    provider: JsonObject | None = Field(default=None, exclude_if=_absent)

    @plain_init
    def __init__(self, text: str, **fields: Any) -> None:
        super().__init__(text=text, **fields)


class ToolCall(Value):
    """A model's call of a tool; *unresolved* until a tool result with its id follows.

    If the model's arguments are not a JSON object, ``args`` is empty and ``malformed`` has their text; such a
    call is never run.
    """

    type: Literal["tool_call"] = "tool_call"
    id: Text
    name: Text
    args: JsonObject
    malformed: Text | None = Field(default=None, exclude_if=_absent)
    provider: JsonObject | None = Field(default=None, exclude_if=_absent)

    @plain_init
    def __init__(self, id: str, name: str, args: Mapping[str, Any], **fields: Any) -> None:
        super().__init__(id=id, name=name, args=args, **fields)

    @property
    def digest(self) -> str:
        """The digest of this call's name and arguments; see `call_digest`."""
        return call_digest(self.name, self.args)


class _Blob(Value):
    """Binary content: either the bytes themselves (``data``, Base64 in JSON) or a reference (``url``)."""

    media_type: Text
    data: bytes | None = Field(default=None, exclude_if=_absent)
    url: Text | None = Field(default=None, exclude_if=_absent)

    @model_validator(mode="after")
    def _one_source(self) -> "_Blob":
        if (self.data is None) == (self.url is None):
            raise ValueError("give either data or url")
        return self


class ImagePart(_Blob):
    """A picture, from a person or from a tool: ``ImagePart(media_type="image/png", data=...)``."""

    type: Literal["image"] = "image"


class FilePart(_Blob):
    """Any other file, from a person or from a tool."""

    type: Literal["file"] = "file"
    name: Text | None = Field(default=None, exclude_if=_absent)


class UnknownPart(Value):
    """A part that a newer version wrote: kept as it is, and sent to no model."""

    type: Text


def _tag(known: frozenset[str]) -> Discriminator:
    def tag(part: Any) -> str | None:
        fields = part
        kind: Any = fields.get("type") if isinstance(part, dict) else getattr(part, "type", None)
        if not isinstance(kind, str):
            return None
        return kind if kind in known else "unknown"

    return Discriminator(tag, custom_error_type="part", custom_error_message="is not a part: it needs a type")


InputPart = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ImagePart, Tag("image")]
    | Annotated[FilePart, Tag("file")]
    | Annotated[UnknownPart, Tag("unknown")],
    _tag(frozenset({"text", "image", "file"})),
]
"""What a person or a tool may say: text, image, file."""

OutputPart = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ThinkingPart, Tag("thinking")]
    | Annotated[ToolCall, Tag("tool_call")]
    | Annotated[UnknownPart, Tag("unknown")],
    _tag(frozenset({"text", "thinking", "tool_call"})),
]
"""What a model may say: text, thinking, tool calls."""


def _parts(content: Any) -> Any:
    """A bare string is one text part, a bare part is a list of one."""
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if isinstance(content, Value):
        return (content,)
    return content


Input = str | InputPart | Sequence[InputPart]
InputContent = Annotated[tuple[InputPart, ...], BeforeValidator(_parts)]
OutputContent = Annotated[tuple[OutputPart, ...], BeforeValidator(_parts)]


def text_of(content: Sequence[Value]) -> str:
    """The text parts of a content, joined."""
    text = ""
    for part in content:  # a loop, as in `_fields`: before Python 3.12 a comprehension is a call
        if isinstance(part, TextPart):
            text += part.text
    return text


# Messages.


class Usage(Value):
    """What a model call cost, in tokens. ``input_tokens`` includes tokens that were read from or written to a
    cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


NO_USAGE = Usage.of_valid()
"""No usage, or unknown usage."""


class UserMessage(Value):
    """What a person said."""

    role: Literal["user"] = "user"
    content: InputContent

    @plain_init
    def __init__(self, content: Input, **fields: Any) -> None:
        if not isinstance(content, str | Sequence | Value):
            wanted = "a text, or a list of parts such as TextPart and ImagePart"
            raise InvalidMessage("content", f"has to be {wanted}, not {type(content).__name__}")
        super().__init__(content=content, **fields)

    @property
    def text(self) -> str:
        """The message's text parts, joined."""
        return text_of(self.content)


class AssistantMessage(Value):
    """What the model said, and why it stopped.

    ``stop_reason`` is ``"aborted"`` for a message that was cut off because the run was aborted, and ``"error"`` if
    the run failed here; ``error`` then says why, and the message is not sent to any model.
    """

    role: Literal["assistant"] = "assistant"
    content: OutputContent
    stop_reason: StopReason = "end"
    usage: Usage = NO_USAGE
    error: Text | None = Field(default=None, exclude_if=_absent)

    @plain_init
    def __init__(self, content: str | OutputPart | Sequence[OutputPart], **fields: Any) -> None:
        super().__init__(content=content, **fields)

    @property
    def text(self) -> str:
        """The message's text parts, joined."""
        return text_of(self.content)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls in this message, in order."""
        return [part for part in self.content if isinstance(part, ToolCall)]


class ToolResultMessage(Value):
    """What became of one tool call. ``details`` is for people and programs; no model sees it."""

    role: Literal["tool"] = "tool"
    tool_call_id: Text
    tool_name: Text
    content: InputContent
    is_error: bool = False
    details: JsonObject | None = Field(default=None, exclude_if=_absent)

    @plain_init
    def __init__(self, tool_call_id: str, tool_name: str, content: Input, **fields: Any) -> None:
        super().__init__(tool_call_id=tool_call_id, tool_name=tool_name, content=content, **fields)

    @property
    def text(self) -> str:
        """The message's text parts, joined."""
        return text_of(self.content)


Message = Annotated[UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")]


# Deltas: a message while it is being said.


class TextDelta(Value):
    """More text."""

    type: Literal["text"] = "text"
    text: str


class ThinkingDelta(Value):
    """More thinking."""

    type: Literal["thinking"] = "thinking"
    text: str


class ToolCallDelta(Value):
    """More of a tool call: ``args`` is the next piece of its arguments' JSON."""

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    args: str


class RestartDelta(Value):
    """The model starts this message again because its connection broke: discard the deltas so far."""

    type: Literal["restart"] = "restart"
    reason: str


Delta = Annotated[TextDelta | ThinkingDelta | ToolCallDelta | RestartDelta, Field(discriminator="type")]


# The encoding.

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message, config=ConfigDict(defer_build=True))


def encode(message: Message) -> str:
    """A message as JSON; `decode` gives back an equal message."""
    fields = _fields(message)
    fields["content"] = list(map(_fields, message.content))
    if message.role == "assistant":
        fields["usage"] = _fields(message.usage)
    try:
        text = to_json(fields, bytes_mode="base64", inf_nan_mode="constants").decode()
        _refuse_not_json(text)
    except (ValueError, PydanticSerializationError) as error:  # from a field that this version does not know
        raise InvalidMessage("", str(error)) from None
    return text


def _fields(value: Value) -> JsonObject:
    """The fields of a value's JSON: those that are not None, and unknown ones.

    Pydantic's serializer gives the same, but is slower: it calls Python for each field and part.
    """
    fields: JsonObject = {}
    for name, field in value.__dict__.items():
        if field is not None:
            fields[name] = field
    if value.__pydantic_extra__:
        fields |= value.__pydantic_extra__
    return fields


def decode(data: str | bytes | Mapping[str, Any]) -> Message:
    """The message that `encode` wrote, from JSON text or from the object parsed from it.

    Raises `InvalidMessage`, which names the path to the fault, for anything else.
    """
    try:
        raw = data if isinstance(data, str | bytes) else to_json(data, inf_nan_mode="constants")
        text = raw if isinstance(raw, str) else raw.decode()
        _refuse_not_json(text)
        return _MESSAGE.validator.validate_json(text)
    except ValidationError as error:
        raise invalid_value(error, error.errors(include_url=False)[0]["loc"][1:]) from None
    except (ValueError, PydanticSerializationError) as error:
        raise InvalidMessage("", str(error)) from None


def _refuse_not_json(text: str) -> None:
    if "NaN" in text or "Infinity" in text:  # pydantic parses them as numbers: check the values
        from_json(text, allow_inf_nan=False)
