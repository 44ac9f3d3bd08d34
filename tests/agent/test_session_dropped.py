"""A call that a person approved, and that a newer prompt leaves behind: it is not run, and who approved is kept."""

from __future__ import annotations

import pytest
from kit.transcripts import calls, results

from askfirst import Agent, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


async def asking(checkpointer: SqlCheckpointer) -> tuple[Agent, list[str]]:
    """An agent that waits for an approval, and what its tool has done."""
    ran: list[str] = []

    @tool(requires_approval=True)
    async def send() -> str:
        """Send."""
        ran.append("sent")
        return "sent"

    agent = Agent(model=ScriptedModel([calls("send"), "On we go."]), tools=[send], checkpointer=checkpointer)
    await agent.prompt("go")
    return agent, ran


async def test_who_approved_stays_on_record(checkpointer: SqlCheckpointer) -> None:
    agent, ran = await asking(checkpointer)
    await checkpointer.settle(agent.thread_id, "c1", {"decision": "approve"}, by="ann", via="test")
    again = Agent.from_spec(agent.spec, checkpointer=checkpointer, thread_id=agent.thread_id)
    left = results((await again.prompt("never mind")).messages)["c1"]
    assert (ran, left.is_error) == ([], True)
    assert left.details == {
        "synthetic": True,
        "hitl": {"decision": "superseded", "answer": "approve", "answered_by": "ann", "via": "test"},
    }


async def test_a_run_that_was_aborted_says_so(checkpointer: SqlCheckpointer) -> None:
    """It was aborted before it came to the call that a person had approved."""
    agent, ran = await asking(checkpointer)
    agent.subscribe(lambda event: agent.abort() if event.type == "run_started" else None)
    result = await agent.respond(answer={"decision": "approve"}, by="ann", via="test")
    assert result is not None
    assert (result.status, ran) == ("aborted", [])
    assert (results(result.messages)["c1"].details or {})["hitl"] == {
        "decision": "aborted",
        "answer": "approve",
        "answered_by": "ann",
        "via": "test",
    }
