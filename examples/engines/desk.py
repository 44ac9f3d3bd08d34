"""The agent that every engine's example resumes: it pays once a person has approved."""

import os
from pathlib import Path

from askfirst import Agent, tool
from askfirst.checkpointer.base import Checkpointer
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.workers import agent_resumer

DATABASE = os.environ.get("ASKFIRST_DATABASE_URL", "sqlite:///askfirst.db")


@tool(requires_approval=True)
def pay(cents: int) -> str:
    """Pay someone."""
    with Path(os.environ.get("PAID", "paid.txt")).open("a") as file:
        file.write(f"{cents}\n")
    return f"paid {cents} cents"


def make_agent(thread_id: str, checkpointer: Checkpointer) -> Agent:
    """The agent that resumes a thread; replace the scripted model with a real one."""
    return Agent(model=ScriptedModel(["Done."]), tools=[pay], checkpointer=checkpointer, thread_id=thread_id)


def asking_agent(thread_id: str, checkpointer: Checkpointer) -> Agent:
    """The agent that asks: its run pauses, and names the resumer that continues it."""
    model = ScriptedModel([ToolCall("c1", "pay", {"cents": 900})])
    return Agent(model=model, tools=[pay], checkpointer=checkpointer, thread_id=thread_id, resumer="desk")


resumers = {"desk": agent_resumer(make_agent)}
