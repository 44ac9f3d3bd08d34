"""Permission prompts of Claude Code at the gate: answered with allow or deny, once for each call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from askfirst import Gate
from askfirst.adapters.claude_prompt import PermissionPrompts
from askfirst.permissions import Rule, Scope, StaticPermissionPolicy

pytestmark = pytest.mark.anyio
ARGS = {"command": "make deploy"}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


def answering(gate: Gate, answer: Any) -> None:
    async def person(request: Any) -> None:
        await gate.answer(request, answer, by="ada")

    gate.on_opened(person)


async def test_an_approved_call_may_run_once_with_the_arguments_that_were_shown(url: str) -> None:
    async with Gate(url) as gate:
        answering(gate, {"decision": "approve"})
        prompts = PermissionPrompts(gate)
        assert await prompts.answer("Bash", ARGS, "toolu_1") == {"behavior": "allow", "updatedInput": ARGS}
        again = await prompts.answer("Bash", ARGS, "toolu_1")
        assert again["behavior"] == "deny"
        other = await prompts.answer("Bash", {"command": "rm -rf /"}, "toolu_1")
        assert other["behavior"] == "deny"
        assert (await prompts.answer("Bash", ARGS, "toolu_2"))["behavior"] == "allow"
        assert (await prompts.answer("Bash", ARGS, None))["behavior"] == "allow"
        assert (await PermissionPrompts(gate).answer("Bash", ARGS, "toolu_1"))["behavior"] == "allow"


async def test_an_edit_is_what_runs(url: str) -> None:
    async with Gate(url) as gate:
        answering(gate, {"decision": "edit", "edited_args": {"command": "make plan"}})
        said = await PermissionPrompts(gate).answer("Bash", ARGS, "toolu_1")
        assert said == {"behavior": "allow", "updatedInput": {"command": "make plan"}}


async def test_a_denial_is_said_with_its_reason(url: str) -> None:
    async with Gate(url) as gate:
        answering(gate, {"decision": "deny", "reason": "not on a Friday"})
        said = await PermissionPrompts(gate).answer("Bash", ARGS, "toolu_1")
        assert said["behavior"] == "deny"
        assert "not on a Friday" in str(said["message"])


async def test_if_nobody_decides_it_is_denied_and_nobody_is_asked_any_more(url: str) -> None:
    async with Gate(url) as gate:
        said = await PermissionPrompts(gate, wait=0.01).answer("Bash", ARGS, "toolu_1")
        assert said["behavior"] == "deny"
        assert "nobody decided in time" in str(said["message"])
        assert await gate.pending() == []


async def test_a_prompt_that_is_given_up_is_withdrawn(url: str) -> None:
    async with Gate(url) as gate:
        opened = asyncio.Event()
        gate.on_opened(lambda _: opened.set())
        prompt = asyncio.create_task(PermissionPrompts(gate).answer("Bash", ARGS, "toolu_1"))
        await opened.wait()
        prompt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await prompt
        assert await gate.pending() == []


async def test_the_policy_decides_first_and_what_nobody_is_asked_about_is_denied(url: str) -> None:
    rules = [Rule(id="read", scope=Scope(tool="Read"), effect="allow"), Rule(id="no", effect="deny")]
    async with Gate(url, policy=StaticPermissionPolicy(rules)) as gate:
        prompts = PermissionPrompts(gate)
        assert (await prompts.answer("Read", {"file_path": "/a"}, "1"))["behavior"] == "allow"
        assert (await prompts.answer("Bash", ARGS, "2"))["behavior"] == "deny"
    async with Gate(url) as gate:
        assert (await PermissionPrompts(gate, ["Write"]).answer("Bash", ARGS, "3"))["behavior"] == "deny"
