"""The model as the loop sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from askfirst.messages import AssistantMessage, Delta, JsonObject, Message


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as a model knows it: a name, when to use it, and a JSON Schema for its arguments."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of a model call; None leaves one to the provider.

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
    """One question to a model: the transcript so far, what it may call, and how it is to answer."""

    messages: tuple[Message, ...]
    instructions: str = ""
    tools: tuple[ToolSchema, ...] = ()
    settings: ModelSettings = ModelSettings()


class Model(Protocol):
    """Something that continues a transcript.

    ``stream`` yields deltas as they come and, last and exactly once, the whole `AssistantMessage`.
    The message is the truth; the deltas let people watch. A failure is raised as a `ModelError`
    (anything else that is raised counts as one that no retry would help). A stream that is closed or
    cancelled early stops asking the provider.
    """

    @property
    def name(self) -> str:
        """What this model is called, for people and traces."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | AssistantMessage]:
        """Ask the model."""
        ...
