"""A checkpointer given by its URL is opened when it is first needed, and closed without anybody's doing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.stores import check_threads

from askfirst import Agent, AgentSpec, tool
from askfirst.errors import StoreError
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    check_threads()


CALL = ToolCall("c1", "pay", {"cents": 5})


@tool(requires_approval=True)
async def pay(cents: int) -> str:
    return "paid"


def agent(folder: Path, *turns: Any) -> Agent:
    return Agent.from_spec(
        AgentSpec("till", ScriptedModel(turns), [pay]),
        checkpointer=f"sqlite:///{folder / 'threads.db'}",
        thread_id="t",
    )


def store_of(agent: Agent) -> Any:
    return agent._store.checkpointer  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]


def test_it_lives_as_long_as_the_loop(tmp_path: Path) -> None:
    asking = agent(tmp_path, CALL)
    assert not (tmp_path / "threads.db").exists()
    assert asyncio.run(asking.prompt("go")).status == "paused"
    assert not store_of(asking).is_open
    assert len(asyncio.run(asking.load())) == 2  # it is opened again, on another loop
    result = asyncio.run(agent(tmp_path, "Done.").respond(answer={"decision": "approve"}))
    assert result is not None
    assert result.status == "completed"
    check_threads()


def test_it_is_closed_with_the_loop_in_which_its_agent_was_made(tmp_path: Path) -> None:
    async def main() -> str:
        return (await agent(tmp_path, "Hello.").prompt("go")).text

    assert asyncio.run(main()) == "Hello."
    check_threads()
    stranger = Agent(model=ScriptedModel(["Hello."]), checkpointer=f"sqlite:///{tmp_path}")
    with pytest.raises(StoreError):
        asyncio.run(stranger.prompt("go"))


@pytest.mark.anyio
async def test_it_is_closed_with_the_agent(tmp_path: Path) -> None:
    async with agent(tmp_path, CALL) as asking:
        assert store_of(asking).is_open
        assert (await asking.prompt("go")).status == "paused"
        seen = [event.type async for event in asking.stream("x", on_pending="supersede")]
        assert "run_ended" in seen
    assert not store_of(asking).is_open
    await asking.aclose()  # once more does no harm
    async with agent(tmp_path, "Hello."), agent(tmp_path, "Hello.") as other:
        assert await other.load_pending_hitl_request() is None


@pytest.mark.anyio
async def test_it_is_closed_when_nobody_has_the_agent_any_more(tmp_path: Path) -> None:
    using = agent(tmp_path, "Hello.")
    await asyncio.gather(using.load(), using.load())
    store = store_of(using)
    assert store.is_open
    del using
    gc.collect()
    async with asyncio.timeout(PATIENCE):
        while store.is_open:  # noqa: ASYNC110
            await asyncio.sleep(0)


def test_what_is_no_url_is_refused_at_once() -> None:
    with pytest.raises(StoreError, match="no store is known for 'redis'"):
        Agent(model=ScriptedModel([]), checkpointer="redis://localhost")
    with pytest.raises(
        StoreError, match="no store is known for a URL without a scheme: a store's URL begins"
    ):
        Agent(model=ScriptedModel([]), checkpointer="threads.db")
