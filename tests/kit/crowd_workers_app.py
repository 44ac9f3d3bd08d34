"""What the workers of a crowd run: an agent that pays once a person has approved, and records each payment."""

from __future__ import annotations

import os

from askfirst import Agent, tool
from askfirst.agent.tools import Tool
from askfirst.checkpointer.base import Checkpointer
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.workers import agent_resumer

EFFECTS = "CROWD_EFFECTS"
"""The variable that names the file in which every payment is a line."""


def payer(thread_id: str) -> Tool:
    @tool(requires_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        file = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{thread_id}\n".encode())
        finally:
            os.close(file)
        return "paid"

    return pay


def agent_of(thread_id: str, store: Checkpointer, at: int = 1) -> Agent:
    """A thread's agent, with its script from turn ``at`` on."""
    turns = [ToolCall("c1", "pay", {"cents": 5}), "Done."][at:]
    return Agent(
        model=ScriptedModel(turns),
        tools=[payer(thread_id)],
        checkpointer=store,
        thread_id=thread_id,
        resumer="desk",
    )


resumers = {"desk": agent_resumer(agent_of)}
