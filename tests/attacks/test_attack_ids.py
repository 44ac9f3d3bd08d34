"""What a person types is an id that we made: a model that chooses its call ids cannot have it mean something else."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from kit.cli_rig import Shell, call, run_command

from askfirst import Agent, tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.service.adoption import case_id_of

pytestmark = pytest.mark.anyio


def computed(thread_id: str, call_id: str) -> str:
    """What the agent's side can compute: the beginning of the whole id of a call's first round."""
    return case_id_of(thread_id, call_id, 1).removeprefix("review_")[:8]


async def _pay(folder: Path, *call_ids: str, seen: str | None = None) -> tuple[str, list[str], list[str]]:
    """A person looks at the first call; it is withdrawn, and the model calls again; the person answers what they saw.

    What was printed for the first call, what ``askfirst answer`` said to it, and whom was paid.
    """
    shell, paid = Shell(folder), list[str]()

    @tool(requires_approval=True)
    async def pay(to: str, cents: int) -> str:
        """Pay somebody."""
        paid.append(to)
        return "paid"

    first, second = call_ids
    turns = [
        ToolCall(first, "pay", {"to": "milkman", "cents": 100}),
        ToolCall(second, "pay", {"to": "mallory", "cents": 99_999_999}),
        "Done.",
    ]
    async with SQLiteCheckpointer(folder / "askfirst.db") as store:
        agent = Agent(id="till", model=ScriptedModel(turns), tools=[pay], checkpointer=store, thread_id="t")
        await agent.prompt("Pay the milkman.")
        _, out, _ = await run_command(shell, "pending")
        printed = out.splitlines()[1].split()[0]
        assert "milkman" in (await run_command(shell, "show", printed))[1]
        await store.cancel("t", first, "its time is over")
        assert (await agent.resume()).status == "paused"
        said: list[str] = []
        for text in (printed, seen, first, second, f"t/{second}"):
            if text is not None:
                code, out, err = await run_command(shell, "answer", text, "--approve")
                said.append(f"{code}: {out}{err}")
        await agent.resume()
    return printed, said, paid


@pytest.mark.attack("H4", "ids that a model chooses")
async def test_a_call_id_that_equals_a_printed_id_is_not_answered_by_it(tmp_path: Path) -> None:
    short = computed("t", "c1")
    _, said, paid = await _pay(tmp_path, "c1", short, seen=short)
    assert paid == []
    assert all(each.startswith("4: ") for each in said), said


@pytest.mark.attack("H4", "ids that a model chooses")
async def test_a_call_id_that_is_chosen_for_its_hash_gets_another_short_id(tmp_path: Path) -> None:
    known: dict[str, str] = {}  # two call ids whose whole ids begin alike: some 65,000 tries
    for number in count():
        second = f"call-{number}"
        first = known.setdefault(computed("t", second), second)
        if first != second:
            break
    printed, said, paid = await _pay(tmp_path, first, second, seen=computed("t", first))
    assert computed("t", first) == computed("t", second)
    assert printed != computed("t", first)
    assert paid == []
    assert all(each.startswith("4: ") for each in said), said


@pytest.mark.attack("H4", "ids that a model chooses")
async def test_the_same_call_id_again_has_another_id(tmp_path: Path) -> None:
    _, said, paid = await _pay(tmp_path, "c1", "c1")
    assert paid == []
    assert all(each.startswith("4: ") for each in said), said


@pytest.mark.attack("H4", "ids that a model chooses")
def test_nothing_is_shown_cancelled_or_linked_by_a_name_that_a_model_chose(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.ask(call("pay", "deadbeef", to="mallory"), "deadbeef", "t")
    for command in (["answer", "--approve"], ["cancel"], ["link"], ["show"]):
        assert "deadbeef is no id of ours" in shell.here(command[0], "deadbeef", *command[1:], code=4)
    for command in (["answer", "--approve"], ["cancel"], ["link"]):
        assert "is no id of ours" in shell.here(command[0], "t/deadbeef", *command[1:], code=4)
    assert "mallory" in shell.here("show", "t/deadbeef")
    assert shell.request("deadbeef", "t").status == "pending"
