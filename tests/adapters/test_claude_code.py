"""Events of Claude Code's hooks at the gate: documents as its reference has them, each answered as by a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from askfirst import Gate
from askfirst.adapters.claude_code import ClaudeHooks
from askfirst.errors import HitlError, HitlInvalidRequest
from askfirst.permissions import Rule, Scope, StaticPermissionPolicy

pytestmark = pytest.mark.anyio


def event(kind: str, call_id: str = "toolu_01", **more: Any) -> dict[str, Any]:
    """An event of a tool call, with the fields that Claude Code's reference lists."""
    return {
        "session_id": "5f0c",
        "transcript_path": "/home/ada/.claude/projects/p/5f0c.jsonl",
        "cwd": "/home/ada/p",
        "permission_mode": "default",
        "hook_event_name": kind,
        "tool_name": "Bash",
        "tool_input": {"command": "make deploy", "description": "Deploy"},
        "tool_use_id": call_id,
        **more,
    }


BEFORE = event("PreToolUse")
AFTER = event("PostToolUse", tool_response={"stdout": "deployed", "stderr": "", "interrupted": False})
KEY = "claude:5f0c:toolu_01"


class Processes:
    """Answers each event with a gate of its own, as a command hook does."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.url = f"sqlite:///{folder}/a.db"
        self.policy = options.pop("policy", None)
        self.options = options

    async def hook(self, given: dict[str, Any], **options: Any) -> dict[str, Any]:
        async with Gate(self.url, policy=self.policy) as gate:
            return await ClaudeHooks.of(gate, **{**self.options, **options}).answer(given)

    async def decision(self, given: dict[str, Any] = BEFORE, **options: Any) -> dict[str, Any]:
        return (await self.hook(given, **options))["hookSpecificOutput"]

    async def answer(self, answer: dict[str, Any], key: str = KEY) -> None:
        async with Gate(self.url) as gate:
            await gate.answer(key, answer, by="ada")

    async def open(self) -> int:
        async with Gate(self.url) as gate:
            return len(await gate.pending())


@pytest.fixture
def claude(tmp_path: Path) -> Processes:
    return Processes(tmp_path, while_pending="defer")


async def test_a_call_is_deferred_approved_run_once_and_never_again(claude: Processes) -> None:
    assert (await claude.decision())["permissionDecision"] == "defer"
    assert (await claude.decision())["permissionDecision"] == "defer"  # resumed before anybody answered
    await claude.answer({"decision": "approve"})
    assert await claude.decision() == {"hookEventName": "PreToolUse", "permissionDecision": "allow"}
    assert await claude.hook(AFTER) == {}
    again = await claude.decision()
    assert again["permissionDecision"] == "deny"
    assert "ran before" in again["permissionDecisionReason"]
    assert "deployed" in again["permissionDecisionReason"]


async def test_a_call_whose_end_nobody_reported_is_in_doubt(claude: Processes) -> None:
    await claude.decision()
    await claude.answer({"decision": "approve"})
    assert (await claude.decision())["permissionDecision"] == "allow"
    assert (await claude.decision())["permissionDecision"] == "defer"  # the session was killed and resumed
    await claude.answer({"action": "skip"})
    skipped = await claude.decision()
    assert skipped["permissionDecision"] == "deny"
    assert "chose not to run it again" in skipped["permissionDecisionReason"]


async def test_an_end_that_comes_while_the_doubt_is_asked_about_withdraws_the_question(
    claude: Processes,
) -> None:
    await claude.decision()
    await claude.answer({"decision": "approve"})
    await claude.decision()
    await claude.decision()
    assert await claude.open() == 1
    await claude.hook(AFTER)
    assert await claude.open() == 0
    assert "ran before" in (await claude.decision())["permissionDecisionReason"]


async def test_edited_arguments_run_and_claude_is_told(claude: Processes) -> None:
    await claude.decision()
    await claude.answer({"decision": "edit", "edited_args": {"command": "make plan"}})
    allowed = await claude.decision()
    assert allowed["permissionDecision"] == "allow"
    assert allowed["updatedInput"] == {"command": "make plan"}
    assert "a person changed the arguments" in allowed["additionalContext"]
    edited = {**AFTER, "tool_input": {"command": "make plan"}}
    assert await claude.hook(edited) == {}
    assert "ran before" in (await claude.decision())["permissionDecisionReason"]


async def test_a_denial_is_said_with_its_reason(claude: Processes) -> None:
    await claude.decision()
    await claude.answer({"decision": "deny", "reason": "not on a Friday"})
    denied = await claude.decision()
    assert denied["permissionDecision"] == "deny"
    assert "not on a Friday" in denied["permissionDecisionReason"]


async def test_other_arguments_under_the_same_id_do_not_run(claude: Processes) -> None:
    await claude.decision()
    await claude.answer({"decision": "approve"})
    altered = event("PreToolUse", tool_input={"command": "rm -rf /"})
    assert (await claude.decision(altered))["permissionDecision"] == "deny"


async def test_a_failure_is_recorded(claude: Processes) -> None:
    await claude.decision()
    await claude.answer({"decision": "approve"})
    await claude.decision()
    await claude.hook(event("PostToolUseFailure", error="exit code 1"))
    assert "exit code 1" in (await claude.decision())["permissionDecisionReason"]


async def test_it_waits_in_place_for_the_answer(claude: Processes) -> None:
    async with Gate(claude.url) as gate:

        async def person(request: Any) -> None:
            await claude.answer({"decision": "approve"})

        gate.on_opened(person)
        answered = await ClaudeHooks.of(gate, wait=60).answer(BEFORE)
    assert answered["hookSpecificOutput"]["permissionDecision"] == "allow"


@pytest.mark.parametrize("while_pending", ["deny", "ask"])
async def test_what_is_not_deferred_leaves_nothing_open(claude: Processes, while_pending: Any) -> None:
    said = await claude.decision(wait=0.01, while_pending=while_pending)
    assert said["permissionDecision"] == while_pending
    assert await claude.open() == 0
    assert await claude.hook(AFTER) == {}  # asked at the terminal, and run: the gate has nothing on it


async def test_a_call_that_ran_although_it_was_deferred_is_reported(claude: Processes) -> None:
    await claude.decision()
    with pytest.raises(HitlError, match="ran Bash although nobody had approved it"):
        await claude.hook(AFTER)
    assert await claude.open() == 0


async def test_tools_that_are_not_named_are_left_to_claude_code(tmp_path: Path) -> None:
    claude = Processes(tmp_path, tools=["Write"])
    assert await claude.hook(BEFORE) == {}
    assert await claude.hook(AFTER) == {}


async def test_a_policy_allows_denies_and_asks(tmp_path: Path) -> None:
    rules = [
        Rule(id="read", scope=Scope(tool="Read"), effect="allow"),
        Rule(id="fetch", scope=Scope(tool="WebFetch"), effect="deny"),
        Rule(id="shell", scope=Scope(tool="Bash"), effect="require_approval"),
    ]
    claude = Processes(tmp_path, policy=StaticPermissionPolicy(rules))
    for tool, expected in (("Read", "allow"), ("WebFetch", "deny"), ("Bash", "deny")):
        given = event("PreToolUse", call_id=f"toolu_{tool}", tool_name=tool)
        assert (await claude.decision(given))["permissionDecision"] == expected


async def test_a_subagents_call_says_whose_it_is(claude: Processes) -> None:
    await claude.decision(event("PreToolUse", agent_id="a1", agent_type="reviewer"))
    async with Gate(claude.url) as gate:
        [waiting] = await gate.pending()
    assert waiting.request.payload.details == {"agent_path": ["reviewer"]}


@pytest.mark.parametrize(
    "missing", ["session_id", "tool_use_id", "tool_name", "tool_input", "hook_event_name"]
)
async def test_an_event_without_what_names_the_call_is_refused(claude: Processes, missing: str) -> None:
    with pytest.raises(HitlInvalidRequest):
        await claude.hook({name: value for name, value in BEFORE.items() if name != missing})


async def test_other_events_get_no_answer(claude: Processes) -> None:
    assert await claude.hook({"hook_event_name": "Stop", "session_id": "5f0c"}) == {}
