"""A tool of Pydantic AI whose API answers 202: ``python examples/meets_a_202/with_pydantic_ai.py``.

It needs the ``models`` extra. The model is a script.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from shop_api import Shop, human, shop

from askfirst.client import HitlClient, ReviewOutcome


@dataclass
class Desk:
    """What the agent's tools need."""

    api: Shop
    client: HitlClient


async def refund(ctx: RunContext[Desk], order: str, cents: int) -> str:
    """Pay money back for an order. The shop may ask a human first."""
    api, body = ctx.deps.api, {"order": order, "cents": cents}
    done = await ctx.deps.client.request("POST", f"{api.url}/refunds", json=body, headers=api.headers)
    if not isinstance(done, ReviewOutcome):
        return f"paid at once: {done.json()['paid']} cents"
    return f"a human decided: {done.action}"


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A scripted model: it calls the tool, then repeats the tool's result."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"The result was: {last.content}")])
    return ModelResponse(parts=[ToolCallPart("refund", {"order": "A-1042", "cents": 4900})])


async def main() -> None:
    agent = Agent(FunctionModel(script), deps_type=Desk, tools=[refund])
    async with shop() as api, HitlClient(deliver=human) as client:
        result = await agent.run("Refund order A-1042.", deps=Desk(api, client))
    print(f"agent: {result.output}")


if __name__ == "__main__":
    asyncio.run(main())
