"""The approve cycle as agno's users write it, on agno's own stores.

Its ``SqliteDb`` and ``PostgresDb`` are faster than their async twins, also below ``arun``. Both calls are measured:
``run`` is the faster one, and it blocks the event loop.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.postgres import PostgresDb
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.run.agent import RunOutput
from agno.tools import tool

from benchmarks.peers import KILOBYTE, Ways


@asynccontextmanager
async def in_memory() -> AsyncIterator[Ways]:
    agent = _agent(None)

    async def run() -> None:
        _check(agent.continue_run(run_response=_confirmed(agent.run("go"))))

    async def arun() -> None:
        _check(await agent.acontinue_run(run_response=_confirmed(await agent.arun("go"))))

    yield {"agno, run": run, "agno, arun": arun}


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Ways]:
    db = SqliteDb(db_file=str(folder / "agno.db"))
    yield _stored(_agent(db))
    db.db_engine.dispose()


@asynccontextmanager
async def postgres(dsn: str) -> AsyncIterator[Ways]:
    db = PostgresDb(db_url=dsn.replace("postgresql://", "postgresql+psycopg://", 1))
    yield _stored(_agent(db))
    db.db_engine.dispose()


@asynccontextmanager
async def after_turns(folder: Path, turns: int) -> AsyncIterator[Ways]:
    """The earlier turns are copies of a real turn, written into agno's table by agno's own method."""
    db = SqliteDb(db_file=str(folder / "agno-long.db"))
    agent = _agent(db, add_history_to_context=True, num_history_runs=2 * turns)
    ways = _stored(agent, session_id="long")
    await ways["agno, run"]()
    [first] = agent.get_session(session_id="long").runs
    for index in range(1, turns):
        db.upsert_run(_copied(first), session_id="long", run_index=index)
    yield ways
    db.db_engine.dispose()


def _copied(run: RunOutput) -> RunOutput:
    copied = copy.deepcopy(run)
    copied.run_id = secrets.token_hex(16)
    return copied


def _stored(agent: Agent, session_id: str | None = None) -> Ways:
    """The cycles on a store. Only the ids and the answers are passed from the pause to the resume, as by a page."""

    async def run() -> None:
        session = session_id or secrets.token_hex(8)
        paused = _confirmed(agent.run("go", session_id=session))
        answers = {"session_id": session, "requirements": paused.requirements}
        _check(agent.continue_run(run_id=paused.run_id, **answers))

    async def arun() -> None:
        session = session_id or secrets.token_hex(8)
        paused = _confirmed(await agent.arun("go", session_id=session))
        answers = {"session_id": session, "requirements": paused.requirements}
        _check(await agent.acontinue_run(run_id=paused.run_id, **answers))

    return {"agno, run": run, "agno, arun": arun}


def _confirmed(paused: RunOutput) -> RunOutput:
    assert paused.is_paused
    for requirement in paused.active_requirements:
        requirement.confirm()
    return paused


def _check(result: RunOutput) -> None:
    assert (result.content, result.messages[-2].content) == ("done", KILOBYTE)


@dataclass
class _Model(Model):
    """A model without latency: one call of ``charge``, then a text."""

    id: str = "call-then-done"

    def invoke(self, *args: Any, messages: list[Message], **kwargs: Any) -> ModelResponse:
        if messages[-1].role == "tool":
            return ModelResponse(role="assistant", content="done")
        function = {"name": "charge", "arguments": '{"amount": 5}'}
        call = {"id": secrets.token_hex(8), "type": "function", "function": function}
        return ModelResponse(role="assistant", content="", tool_calls=[call])

    async def ainvoke(self, *args: Any, messages: list[Message], **kwargs: Any) -> ModelResponse:
        return self.invoke(messages=messages)

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def ainvoke_stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response(self, response: ModelResponse, **kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: ModelResponse) -> ModelResponse:
        return response


@tool(requires_confirmation=True)
def charge(amount: int) -> str:
    """Charge a card."""
    return KILOBYTE


def _agent(db: Any, **settings: Any) -> Agent:
    return Agent(model=_Model(), tools=[charge], db=db, telemetry=False, **settings)
