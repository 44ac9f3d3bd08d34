"""The models of a crowd: random calls, each with a unique id and a unique amount."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from askfirst.messages import Message, ToolCall


class CallingModels:
    """All the models of one crowd."""

    def __init__(self, dice: random.Random, tools: Sequence[str]) -> None:
        self._dice = dice
        self._tools = tools
        self._calls = 0

    def turn(self, messages: list[Message]) -> Any:
        """A turn: some calls, a question, or a text; after results mostly the final text."""
        if messages[-1].role == "tool" and self._dice.random() < 0.8:
            return "done"
        match self._dice.choice(["one", "one", "some", "some", "ask", "talk"]):
            case "talk":
                return "hello"
            case "ask":
                number = self.next()
                asked = {"questions": [{"key": "k", "prompt": f"What about {number}?"}]}
                return [ToolCall(f"ask-{number}", "ask_user", asked)]
            case some:
                count = 1 if some == "one" else self._dice.choice([2, 3])
                return [self._call(self._dice.choice(self._tools)) for _ in range(count)]

    def _call(self, name: str) -> ToolCall:
        number = self.next()
        return ToolCall(f"{name}-{number}", name, {"amount": number})

    def delegating_turn(self, messages: list[Message]) -> Any:
        """A turn that may also call ``helper``."""
        return self._with_help(messages, "helper", 0.5)

    def helping_turn(self, messages: list[Message]) -> Any:
        """A turn of ``helper``, which may call a ``clerk``."""
        return self._with_help(messages, "clerk", 0.25)

    def _with_help(self, messages: list[Message], name: str, chance: float) -> Any:
        said = self.turn(messages)
        if isinstance(said, str) or self._dice.random() >= chance:
            return said
        helping = [
            ToolCall(f"{name}-{self.next()}", name, {"prompt": "Help."})
            for _ in range(self._dice.choice([1, 1, 2]))
        ]
        return self._dice.choice([helping, [*helping, *said], [*said, *helping]])

    def next(self) -> int:
        """A number that no call has used."""
        self._calls += 1
        return self._calls
