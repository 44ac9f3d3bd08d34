"""A tool that takes a set: what a person approved in one process is what another process runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from askfirst.agent.tools import json_object

PROGRAM = """
import asyncio, sys
from askfirst import Agent, tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

@tool(requires_approval=True)
async def label(names: set[str]) -> str:
    "Label."
    return ",".join(sorted(names))

async def main(path, act):
    async with SQLiteCheckpointer(path) as store:
        call = ToolCall("c1", "label", {"names": ["b", "a", "d", "c", "f", "e"]})
        turns = [call] if act == "ask" else ["done"]
        agent = Agent(model=ScriptedModel(turns), tools=[label], checkpointer=store, thread_id="t")
        if act == "ask":
            asked = (await agent.prompt("go")).pending_approvals[0]
            print(asked.tool_call.args)
            await store.settle("t", "c1", {"decision": "approve"})
        else:
            result = await agent.resume()
            print(result.status, result.messages[2].text)

asyncio.run(main(*sys.argv[1:]))
"""


def run(path: Path, act: str, seed: int) -> str:
    command = [sys.executable, "-c", PROGRAM, str(path), act]
    env = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.run(  # noqa: S603
        command, check=True, capture_output=True, text=True, env=env
    ).stdout.strip()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_approval_counts_in_a_process_that_hashes_otherwise(tmp_path: Path, seed: int) -> None:
    shown = run(tmp_path / "t.db", "ask", seed)
    assert shown == "{'names': ['a', 'b', 'c', 'd', 'e', 'f']}"
    assert run(tmp_path / "t.db", "resume", seed + 10) == "completed a,b,c,d,e,f"


def test_sets_are_sorted_wherever_they_are_and_nothing_else_is() -> None:
    class Inner(BaseModel):
        tags: frozenset[str]
        steps: list[str]

    class Outer(BaseModel):
        inner: dict[str, Inner]
        many: list[set[int]] = Field(alias="Many")
        pair: tuple[set[str], str]

    outer = Outer(
        inner={"x": Inner(tags=frozenset("cba"), steps=["z", "a"])},
        Many=[{3, 1, 2}, {9, 8}],
        pair=({"q", "p"}, "end"),
    )
    assert json_object(outer) == {
        "inner": {"x": {"tags": ["a", "b", "c"], "steps": ["z", "a"]}},
        "Many": [[1, 2, 3], [8, 9]],
        "pair": [["p", "q"], "end"],
    }
