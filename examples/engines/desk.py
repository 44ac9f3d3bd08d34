"""What goes on, whatever engine runs it: an agent that pays once a person has said so."""

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
    """The agent of a thread that goes on; a real one has a real model here."""
    return Agent(model=ScriptedModel(["Done."]), tools=[pay], checkpointer=checkpointer, thread_id=thread_id)


def asking_agent(thread_id: str, checkpointer: Checkpointer) -> Agent:
    """The agent that asks: what it prompts pauses, and its resumer is named."""
    model = ScriptedModel([ToolCall("c1", "pay", {"cents": 900})])
    return Agent(model=model, tools=[pay], checkpointer=checkpointer, thread_id=thread_id, resumer="desk")


resumers = {"desk": agent_resumer(make_agent)}
