"""A tool of the OpenAI Agents SDK whose API answers 202: ``python examples/meets_a_202/with_openai_agents.py``.

It needs ``pip install openai-agents``, and no API key: the model is a script.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, FunctionTool, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.items import TResponseStreamEvent
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from shop_api import Shop, human, shop

from askfirst.client import HitlClient, ReviewOutcome


def refund_tool(client: HitlClient, api: Shop) -> FunctionTool:
    """The shop's API as a tool."""

    @function_tool
    async def refund(order: str, cents: int) -> str:
        """Pay money back for an order. The shop may ask a human first."""
        body = {"order": order, "cents": cents}
        done = await client.request("POST", f"{api.url}/refunds", json=body, headers=api.headers)
        if not isinstance(done, ReviewOutcome):
            return f"paid at once: {done.json()['paid']} cents"
        return f"a human decided: {done.action}"

    return refund


class Script(Model):
    """A scripted model: it calls the tool, then repeats the tool's result."""

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **options: Any
    ) -> ModelResponse:
        results = [item["output"] for item in input if item.get("type") == "function_call_output"]
        said = _message(f"The result was: {results[0]}") if results else _call()
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError


def _call() -> ResponseFunctionToolCall:
    arguments = json.dumps({"order": "A-1042", "cents": 4900})
    return ResponseFunctionToolCall(
        type="function_call", call_id="call_1", name="refund", arguments=arguments
    )


def _message(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="message_1", type="message", role="assistant", status="completed", content=[part]
    )


async def main() -> None:
    async with shop() as api, HitlClient(deliver=human) as client:
        agent = Agent(name="desk", model=Script(), tools=[refund_tool(client, api)])
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, "Refund order A-1042.", run_config=config)
    print(f"agent: {result.final_output}")


if __name__ == "__main__":
    asyncio.run(main())
