"""Askfirst's model request as pydantic-ai's types.

Nothing here does any I/O. Imports pydantic-ai: load it lazily.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from pydantic_ai import messages as pai
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings as PydanticSettings
from pydantic_ai.tools import ToolDefinition

from askfirst.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    InputPart,
    Message,
    OutputPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from askfirst.models.base import ModelRequest, ModelSettings
from askfirst.models.pydantic_ai_response import Origin

EMPTY = "(empty message)"
"""Sent in place of a person's message without content, because providers refuse an empty message."""

_Item = str | pai.BinaryContent | pai.ImageUrl | pai.AudioUrl | pai.VideoUrl | pai.DocumentUrl
_URLS = {"image": pai.ImageUrl, "audio": pai.AudioUrl, "video": pai.VideoUrl}
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/toml"})


def to_pydantic_ai(messages: Sequence[Message]) -> list[pai.ModelMessage]:
    """A transcript as pydantic-ai's history.

    The results of a turn's tool calls directly follow the turn, also if a person said something in between, because
    providers require that. Content that is not for models is left out: failed turns, empty turns, unknown parts,
    ``details``. Every tool call must have its result: none is made up here.
    """
    history: list[pai.ModelMessage] = []
    results: list[pai.ModelRequestPart] = []
    prompts: list[pai.ModelRequestPart] = []

    def flush() -> None:
        # Two requests, not one, so that pictures that a tool returned come before the person's message.
        history.extend(pai.ModelRequest(parts=list(parts)) for parts in (results, prompts) if parts)
        results.clear()
        prompts.clear()

    for message in messages:
        match message:
            case ToolResultMessage():
                results.append(_tool_return(message))
            case UserMessage():
                prompts.append(pai.UserPromptPart(_prompt(message)))
            case AssistantMessage():
                response = _response(message)
                if response is not None:
                    flush()
                    history.append(response)
    flush()
    return history


def parameters_for(request: ModelRequest) -> ModelRequestParameters:
    """A request's instructions and tools."""
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description or None,
                parameters_json_schema=tool.parameters,
            )
            for tool in request.tools
        ],
        instruction_parts=[pai.InstructionPart(content=request.instructions)] if request.instructions else [],
    )


def settings_for(model: Model, settings: ModelSettings) -> PydanticSettings:
    """A request's settings; a value in ``extra`` overrides the others.

    The SDK's retries are switched off if ``model`` supports that, because Askfirst retries itself. Otherwise a
    request that keeps failing would be sent (1 + 2) times for each attempt.
    """
    given: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": settings.max_tokens,
        "timeout": settings.timeout,
        "seed": settings.seed,
        "parallel_tool_calls": settings.parallel_tool_calls,
    }
    if _takes_max_retries(model) and "max_retries" not in (model.settings or {}):
        given["max_retries"] = 0
    given = {name: value for name, value in given.items() if value is not None} | settings.extra
    return cast("PydanticSettings", given)


def _takes_max_retries(model: Model) -> bool:
    """Whether ``model`` supports the setting; a model that does not would warn about it at every request."""
    if isinstance(model, WrapperModel):
        return _takes_max_retries(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(_takes_max_retries(choice) for choice in model.models)
    return "max_retries" not in model.unsupported_settings


def _prompt(message: UserMessage) -> str | list[_Item]:
    items = list(_items(message.content))
    if len(items) == 1 and isinstance(items[0], str):
        return items[0]
    return items or EMPTY


def _tool_return(message: ToolResultMessage) -> pai.ToolReturnPart:
    return pai.ToolReturnPart(
        tool_name=_valid_name(message.tool_name, _NAME_LENGTH),
        content=_result(message),
        tool_call_id=_valid_name(message.tool_call_id, _ID_LENGTH),
        outcome="failed" if message.is_error else "success",
    )


def _result(message: ToolResultMessage) -> str | list[_Item]:
    items = list(_items(message.content))
    if items and all(isinstance(item, str) for item in items):
        return message.text  # pydantic-ai would show OpenAI a JSON list of several strings
    if message.is_error and items:  # Anthropic takes nothing but text in the result of a call that failed
        return "\n".join(item if isinstance(item, str) else f"({item.media_type} left out)" for item in items)
    return items


def _items(content: Sequence[InputPart]) -> Iterator[_Item]:
    """The items to send. Blank text is left out, because Anthropic refuses it."""
    for part in content:
        if isinstance(part, TextPart) and part.text.strip():
            yield part.text
        elif isinstance(part, ImagePart | FilePart):
            yield _file(part)


def _file(part: ImagePart | FilePart) -> _Item:
    name = part.name if isinstance(part, FilePart) else None
    if part.url is not None:
        kind = _URLS.get(part.media_type.partition("/")[0], pai.DocumentUrl)
        return kind(url=part.url, media_type=part.media_type, identifier=name)
    data = part.data or b""
    media_type = "text/plain" if _is_text(part.media_type, data) else part.media_type
    return pai.BinaryContent(data=data, media_type=media_type, identifier=name)


def _is_text(media_type: str, data: bytes) -> bool:
    """Whether a file can be sent as plain text, which every provider accepts; few accept CSV or JSON files."""
    if not media_type.startswith("text/") and media_type not in _TEXT_TYPES:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _response(message: AssistantMessage) -> pai.ModelResponse | None:
    """The model's turn, or None if nothing of it is to be sent."""
    if message.stop_reason == "error":
        return None
    parts = [sent for part in message.content if (sent := _response_part(part)) is not None]
    # A turn that was cut off may end in thinking, which neither Anthropic nor OpenAI accepts.
    while parts and isinstance(parts[-1], pai.ThinkingPart):
        parts.pop()
    if not parts:
        return None
    origins = (Origin.of(part) for part in message.content)
    origin = next((origin for origin in origins if origin.name is not None), Origin())
    return pai.ModelResponse(
        parts=parts,
        provider_name=origin.name,
        provider_url=origin.url,
        canonical_system=origin.system,
    )


def _response_part(part: OutputPart) -> pai.ModelResponsePart | None:
    origin = Origin.of(part)
    match part:
        case TextPart() if part.text.strip():
            return pai.TextPart(
                part.text, id=origin.id, provider_name=origin.name, provider_details=origin.details
            )
        case ThinkingPart():
            return pai.ThinkingPart(
                part.text,
                id=origin.id,
                signature=part.signature,
                provider_name=origin.name,
                provider_details=origin.details,
            )
        case ToolCall():
            # Both OpenAI and Anthropic want an object; the key is the one Anthropic recommends for this.
            malformed = {pai.INVALID_JSON_KEY: part.malformed}
            return pai.ToolCallPart(
                tool_name=_valid_name(part.name, _NAME_LENGTH),
                args=dict(part.args) if part.malformed is None else malformed,
                tool_call_id=_valid_name(part.id, _ID_LENGTH),
                id=origin.id,
                provider_name=origin.name,
                provider_details=origin.details,
            )
        case _:
            return None


_NAME_LENGTH, _ID_LENGTH = 64, 40
"""The longest names and ids that every provider accepts; some accept longer ones."""


def _valid_name(name: str, length: int) -> str:
    """A tool's name or a call's id in a form that all providers accept. A model may have made up an invalid one, and
    providers then refuse the whole conversation. Invalid characters are replaced and a digest is added, so that a
    call and its result still have the same id."""
    if re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{length}}}", name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", name)[: length - len(digest) - 1]
    return f"{plain}_{digest}"
