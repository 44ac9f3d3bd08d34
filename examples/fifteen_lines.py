import asyncio

from askfirst import Agent, tool
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel


@tool
def stock(item: str) -> int:
    """Count what is left of an item."""
    return {"coffee": 12, "tea": 0}[item]


@tool
def order(item: str, count: int) -> str:
    """Order more of an item."""
    return f"{count} packs of {item} are on their way."


calls = [ToolCall("1", "stock", {"item": "tea"}), ToolCall("2", "order", {"item": "tea", "count": 5})]
agent = Agent(model=ScriptedModel([*calls, "We were out of tea. I ordered 5."]), tools=[stock, order])
print(asyncio.run(agent.prompt("Is there tea left? If not, order 5 packs.")).text)
