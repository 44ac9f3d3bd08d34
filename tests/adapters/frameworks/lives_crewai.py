"""One life of a CrewAI flow: ``python lives_crewai.py VERB``; see kit.framework_races."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from kit.framework_races import answer, at_the_line, go_on, say, write_effect

FOLDER = Path(os.environ.get("LIFE_FOLDER", "."))
os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_STORAGE_DIR", str(FOLDER))

from crewai.flow.async_feedback import HumanFeedbackPending  # noqa: E402
from crewai.flow.flow import Flow, listen, start  # noqa: E402
from crewai.flow.human_feedback import human_feedback  # noqa: E402
from crewai.flow.persistence import SQLiteFlowPersistence  # noqa: E402

from askfirst import Gate  # noqa: E402
from askfirst.adapters.crewai import AskfirstFeedback, crewai_resumer  # noqa: E402
from askfirst.checkpointer.connect import checkpointer_from_url  # noqa: E402

NAME = "CrewAI Flows"
UNSUPPORTED: dict[str, str] = {
    "one of two answered": "a flow asks one thing at a time",
}
OURS = os.environ.get("LIFE_SIDE", "ours") == "ours"
GATE = Gate(os.environ.get("LIFE_STORE", "sqlite:///unused.db"))
FEEDBACK = AskfirstFeedback(GATE)


class Waits:
    """What a provider of an application without the gate does: it tells somebody, and pauses the flow."""

    def request_feedback(self, context: Any, flow: Any) -> str:
        raise HumanFeedbackPending(context=context)


class Shop(Flow[dict[str, Any]]):
    """Proposes a charge, and charges what a person has agreed to."""

    _skip_auto_memory: bool = True  # a memory that nothing here uses, and that takes CrewAI seconds to load

    @start()
    @human_feedback(message="Charge the card?", provider=FEEDBACK if OURS else Waits())
    def propose(self) -> dict[str, Any]:
        return {"cents": 5}

    if OURS:

        @listen(propose)
        @FEEDBACK.effect
        def charge(self, feedback: Any) -> str:
            return charged(feedback)
    else:

        @listen(propose)
        def charge(self, feedback: Any) -> str:
            return charged(feedback) if feedback.feedback == "approved" else "not charged"


def charged(feedback: Any) -> str:
    cents = feedback.output["cents"]
    write_effect("charge", cents)
    return f"charged {cents}"


def persistence() -> SQLiteFlowPersistence:
    return SQLiteFlowPersistence(str(FOLDER / "flows.db"))


async def resume_with_a_yes() -> Any:
    """Resume the flow, as CrewAI's documentation has it."""
    flow = Shop.from_pending(_flow_id(), persistence())
    at_the_line()
    return await flow.resume_async("approved")


def _flow_id() -> str:
    return str(json.loads((FOLDER / "flow.json").read_text()))


def alter() -> None:
    """Change what the flow proposed, wherever the flow's rows have it."""
    with sqlite3.connect(FOLDER / "flows.db") as database:
        for column in ("context_json", "state_json"):
            new = f"""replace({column}, '"cents": 5', '"cents": 9999')"""
            database.execute(f"UPDATE pending_feedback SET {column} = {new}")  # noqa: S608
        rows = database.execute("SELECT context_json FROM pending_feedback").fetchall()
    assert "9999" in rows[0][0]


async def main(verb: str) -> None:
    result: Any = ""
    if verb == "alter":
        alter()
        return
    if verb == "ask":
        flow = Shop(persistence=persistence())
        result = await flow.kickoff_async()
        (FOLDER / "flow.json").write_text(json.dumps(flow.flow_id))
    elif not OURS or verb == "early":
        result = await resume_with_a_yes()
    else:
        async with checkpointer_from_url(os.environ["LIFE_STORE"], lease_seconds=1) as store:
            if verb == "press":
                await answer(GATE)
            resume = crewai_resumer(Shop, FEEDBACK, persistence())

            async def resumer(continuation: Any) -> None:
                nonlocal result
                result = await resume(continuation) or result

            await go_on(store, {"crewai": resumer})
    await GATE.aclose()
    say(paused=isinstance(result, HumanFeedbackPending), text=str(result))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
