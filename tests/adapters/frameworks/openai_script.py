"""A model of the OpenAI Agents SDK that makes the given calls turn by turn; told by the input, as in any process."""

from __future__ import annotations

import json
from typing import Any

from agents import Model, ModelResponse, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)
Call = tuple[str, dict[str, Any], str]


class ScriptedModel(Model):
    """Makes the calls of one turn after another, then says what it was told of them."""

    def __init__(self, *turns: list[Call]) -> None:
        self.turns = turns
        self.asked = 0

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        """The next turn."""
        self.asked += 1
        items = [] if isinstance(input, str) else [dict(it) for it in input]
        told = [str(it["output"]) for it in items if it.get("type") == "function_call_output"]
        left = len(told)
        for turn in self.turns:
            if left == 0:
                return _response([_call(*it) for it in turn])
            left -= len(turn)
        return _response([_text(" | ".join(told))])

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        """Not used."""
        raise NotImplementedError


def _response(output: list[Any]) -> ModelResponse:
    return ModelResponse(output=output, usage=Usage(requests=1), response_id=None)


def _call(name: str, args: dict[str, Any], call_id: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", name=name, arguments=json.dumps(args), call_id=call_id
    )


def _text(text: str) -> ResponseOutputMessage:
    said = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="m1", type="message", role="assistant", status="completed", content=[said]
    )
