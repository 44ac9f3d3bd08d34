"""A tool of LangGraph whose API answers 202: ``python examples/meets_a_202/with_langgraph.py``.

It needs ``pip install langgraph``. The model is a script.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from shop_api import Shop, human, shop

from askfirst.client import HitlClient, ReviewOutcome


def refund_tool(client: HitlClient, api: Shop) -> BaseTool:
    """The shop's API as a tool."""

    @tool
    async def refund(order: str, cents: int) -> str:
        """Pay money back for an order. The shop may ask a human first."""
        body = {"order": order, "cents": cents}
        done = await client.request("POST", f"{api.url}/refunds", json=body, headers=api.headers)
        if not isinstance(done, ReviewOutcome):
            return f"paid at once: {done.json()['paid']} cents"
        return f"a human decided: {done.action}"

    return refund


CALL = {"name": "refund", "args": {"order": "A-1042", "cents": 4900}, "id": "call_1"}
SCRIPT = [AIMessage("", tool_calls=[CALL]), AIMessage("A human has looked at your refund.")]


async def main() -> None:
    model = GenericFakeChatModel(messages=iter(SCRIPT))

    async def think(state: MessagesState) -> dict[str, list[AIMessage]]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async with shop() as api, HitlClient(deliver=human) as client:
        graph = StateGraph(MessagesState)
        graph.add_node("think", think)
        graph.add_node("tools", ToolNode([refund_tool(client, api)]))
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", tools_condition)
        graph.add_edge("tools", "think")
        result = await graph.compile().ainvoke({"messages": [HumanMessage("Refund order A-1042.")]})
    print(f"tool: {result['messages'][-2].content}")
    print(f"agent: {result['messages'][-1].content}")


if __name__ == "__main__":
    asyncio.run(main())
