"""The protocol of a model, and the values that the loop passes to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from askfirst.messages import AssistantMessage, Delta, JsonObject, Message


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as it is described to a model: its name, when to use it, and a JSON Schema for its arguments."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of a model call; None means the provider's default.

    ``extra`` is passed on to the model unchanged, for settings that only some providers know.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call: the transcript so far, the instructions, the tools and the settings."""

    messages: tuple[Message, ...]
    instructions: str = ""
    tools: tuple[ToolSchema, ...] = ()
    settings: ModelSettings = ModelSettings()


class Model(Protocol):
    """A model continues a transcript.

    ``stream`` yields deltas as they arrive and, last and exactly once, the whole `AssistantMessage`. Only the message
    becomes part of the transcript; the deltas are for people who watch. A failure is raised as a `ModelError`; any
    other exception counts as a `ModelError` that is not retryable. If the stream is closed or cancelled early, the
    request to the provider ends.
    """

    @property
    def name(self) -> str:
        """The model's name, for people and traces."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | AssistantMessage]:
        """Ask the model."""
        ...
