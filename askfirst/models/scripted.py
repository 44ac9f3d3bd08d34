"""ScriptedModel: a model that answers from a script, for tests, demos and benchmarks."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from askfirst.errors import ScriptExhausted
from askfirst.messages import (
    AssistantMessage,
    Delta,
    Message,
    OutputPart,
    TextDelta,
    TextPart,
    ThinkingDelta,
    ThinkingPart,
    ToolCall,
    ToolCallDelta,
)
from askfirst.models.base import ModelRequest

Said = str | OutputPart | Sequence[str | OutputPart] | AssistantMessage
Turn = Said | Callable[[list[Message]], Said | Awaitable[Said]]

_WORDS = re.compile(r"\s*\S+\s*")


class ScriptedModel:
    """Answers with the given turns, one for each call, streaming like a real model.

    A turn is text, a `ToolCall`, a list of both, an `AssistantMessage`, or a function (sync or async) that gets the
    messages so far and returns one of these or raises. ``requests`` has the messages of every call. When the turns
    are used up, asking raises `ScriptExhausted`.
    """

    def __init__(self, turns: Sequence[Turn], *, name: str = "scripted") -> None:
        self._turns = tuple(turns)
        self._name = name
        self.requests: list[list[Message]] = []

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | AssistantMessage]:
        """Answer with the next turn: yields deltas, then the whole message."""
        self.requests.append(list(request.messages))
        if len(self.requests) > len(self._turns):
            raise ScriptExhausted(len(self._turns))
        turn = self._turns[len(self.requests) - 1]
        if callable(turn):
            said = turn(list(request.messages))
            turn = await said if inspect.isawaitable(said) else said
        message = _message(turn)
        for part in message.content:
            for delta in _deltas(part):
                yield delta
        yield message


def _message(said: Said) -> AssistantMessage:
    if isinstance(said, AssistantMessage):
        return said
    parts = [said] if isinstance(said, str) or not isinstance(said, Sequence) else said
    content = [TextPart(part) if isinstance(part, str) else part for part in parts]
    calls = any(isinstance(part, ToolCall) for part in content)
    return AssistantMessage(content, stop_reason="tool_use" if calls else "end")


def _deltas(part: OutputPart) -> list[Delta]:
    """A part in small pieces, as a provider would send them: words, or halves of arguments."""
    if isinstance(part, TextPart):
        return [TextDelta(text=word) for word in _WORDS.findall(part.text) or [part.text]]
    if isinstance(part, ThinkingPart):
        return [ThinkingDelta(text=word) for word in _WORDS.findall(part.text) or [part.text]]
    if isinstance(part, ToolCall):
        args = part.malformed if part.malformed is not None else json.dumps(part.args)
        half = len(args) // 2
        return [ToolCallDelta(id=part.id, name=part.name, args=piece) for piece in (args[:half], args[half:])]
    return []
