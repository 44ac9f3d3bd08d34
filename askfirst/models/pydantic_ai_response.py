"""pydantic-ai's stream and response as Askfirst's types.

Nothing here does any I/O. Imports pydantic-ai: load it lazily.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai import messages as pai
from pydantic_core import from_json, to_json, to_jsonable_python

from askfirst.errors import InvalidMessage, ModelError
from askfirst.messages import (
    AssistantMessage,
    Delta,
    JsonObject,
    OutputPart,
    StopReason,
    TextDelta,
    TextPart,
    ThinkingDelta,
    ThinkingPart,
    ToolCall,
    ToolCallDelta,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a part: its ``provider`` field, with the values that the provider needs back."""

    name: str | None = None
    id: str | None = None
    details: dict[str, Any] | None = None
    url: str | None = None
    system: str | None = None

    @staticmethod
    def of(part: OutputPart) -> Origin:
        """The origin that `to_json` wrote into a part; an empty one if another kind of model wrote the part."""
        provider = getattr(part, "provider", None)
        if not isinstance(provider, dict):
            return Origin()
        fields = cast("dict[str, Any]", provider)
        text = {
            key: fields[key] for key in ("name", "id", "url", "system") if isinstance(fields.get(key), str)
        }
        if "name" not in text:
            return Origin()
        details = fields.get("details")
        return Origin(**text, details=cast("dict[str, Any]", details) if isinstance(details, dict) else None)

    def to_json(self) -> JsonObject | None:
        """The ``provider`` field, or None if the provider needs nothing back."""
        if self.name is None:
            return None
        fields = {key: getattr(self, key) for key in ("name", "id", "details", "url", "system")}
        kept = {key: value for key, value in fields.items() if value is not None}
        return to_jsonable_python(kept, serialize_unknown=True)


class DeltaReader:
    """Turns the stream events of one answer into deltas; it remembers which tool call each piece belongs to."""

    def __init__(self) -> None:
        self._calls: dict[int, pai.ToolCallPart] = {}

    def read(self, event: pai.ModelResponseStreamEvent) -> Delta | None:
        """The event's delta, or None for events without text or arguments."""
        match event:
            case pai.PartStartEvent(index=index, part=pai.ToolCallPart() as call):
                self._calls[index] = call
                return _call_delta(call, call.args)
            case pai.PartStartEvent(part=pai.TextPart(content=text)):
                return _text_delta(text)
            case pai.PartStartEvent(part=pai.ThinkingPart(content=text)):
                return _thinking_delta(text)
            case pai.PartDeltaEvent(delta=pai.TextPartDelta(content_delta=text)):
                return _text_delta(text)
            case pai.PartDeltaEvent(delta=pai.ThinkingPartDelta(content_delta=text)):
                return _thinking_delta(text or "")
            case pai.PartDeltaEvent(index=index, delta=pai.ToolCallPartDelta(args_delta=args)) if args:
                call = self._calls.get(index)
                return None if call is None else _call_delta(call, args)
            case _:
                return None


def from_pydantic_ai(response: pai.ModelResponse) -> AssistantMessage:
    """The whole answer. Raises `ModelError` if it was filtered, failed or cut off."""
    _check(response)
    content = [part for part in (_output_part(part, response) for part in response.parts) if part is not None]
    usage = response.usage
    return AssistantMessage(
        content,
        stop_reason=_stop_reason(response, content),
        usage=Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        ),
    )


def _check(response: pai.ModelResponse) -> None:
    details = response.provider_details or {}
    if response.finish_reason == "content_filter":
        why = details.get("refusal") or details.get("finish_reason") or "no reason given"
        raise ModelError(f"the provider's content filter stopped the answer: {_valid_unicode(str(why))}")
    if response.finish_reason == "error":
        why = details.get("finish_reason") or "no reason given"
        raise ModelError(f"the provider gave up on the answer: {why}", retryable=True)
    if response.state == "suspended":
        raise ModelError("the provider paused its turn, which Askfirst cannot resume")
    # pydantic-ai accepts an Anthropic stream that stops without an end as a whole answer. Models without a URL are
    # pydantic-ai's own test models, which give no reason for finishing.
    unexplained = response.finish_reason is None and "finish_reason" not in details
    if response.state == "incomplete" or (unexplained and response.provider_url is not None):
        raise ModelError("the provider's answer ended too early", retryable=True)


def _stop_reason(response: pai.ModelResponse, content: Sequence[OutputPart]) -> StopReason:
    if response.finish_reason == "length":
        return "length"
    return "tool_use" if any(isinstance(part, ToolCall) for part in content) else "end"


def _output_part(part: pai.ModelResponsePart, response: pai.ModelResponse) -> OutputPart | None:
    match part:
        case pai.TextPart() if part.content:
            return TextPart(_valid_unicode(part.content), provider=_origin(part, response))
        case pai.ThinkingPart() if part.content or part.signature:
            provider = _origin(part, response)
            return ThinkingPart(_valid_unicode(part.content), signature=part.signature, provider=provider)
        case pai.ToolCallPart():
            return _tool_call(part, _origin(part, response))
        case _:
            return None


def _origin(
    part: pai.TextPart | pai.ThinkingPart | pai.ToolCallPart, response: pai.ModelResponse
) -> JsonObject | None:
    return Origin(
        part.provider_name,
        part.id,
        part.provider_details,
        _without_secrets(response.provider_url),
        response.canonical_system,
    ).to_json()


def _without_secrets(url: str | None) -> str | None:
    """A base URL for the transcript; None if it may contain a password or a key."""
    return None if url is None or "@" in url or "?" in url else url


def _tool_call(part: pai.ToolCallPart, provider: JsonObject | None) -> ToolCall:
    raw = part.args if isinstance(part.args, str) else _json(part.args or {})
    try:
        args: object = from_json(raw) if raw.strip() else {}
        if isinstance(args, dict):
            sound = cast("dict[str, Any]", args)
            return ToolCall(part.tool_call_id, part.tool_name, sound, provider=provider)
    except (ValueError, InvalidMessage):
        pass  # not JSON, or JSON that a transcript cannot hold: NaN, 1e999, a lone surrogate
    return ToolCall(part.tool_call_id, part.tool_name, {}, malformed=_valid_unicode(raw), provider=provider)


def _text_delta(text: str) -> TextDelta | None:
    return TextDelta(text=_valid_unicode(text)) if text else None


def _thinking_delta(text: str) -> ThinkingDelta | None:
    return ThinkingDelta(text=_valid_unicode(text)) if text else None


def _call_delta(call: pai.ToolCallPart, args: str | Mapping[str, object] | None) -> ToolCallDelta:
    piece = args if isinstance(args, str) else _json(args) if args else ""
    return ToolCallDelta(id=call.tool_call_id, name=call.tool_name, args=_valid_unicode(piece))


def _json(args: Mapping[str, object]) -> str:
    return to_json(args, serialize_unknown=True).decode()


def _valid_unicode(text: str) -> str:
    """The text as valid Unicode. Surrogates that form a pair are joined, lone ones are replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
