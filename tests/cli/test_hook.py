"""``askfirst hook``: a command hook of Claude Code, which answers on standard output and fails closed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.cli_rig import Shell

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.gate.gate import Gate

BEFORE: dict[str, Any] = {
    "session_id": "5f0c",
    "transcript_path": "/home/ada/.claude/projects/p/5f0c.jsonl",
    "cwd": "/home/ada/p",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "make deploy"},
    "tool_use_id": "toolu_01",
}
AFTER = {**BEFORE, "hook_event_name": "PostToolUse", "tool_response": {"stdout": "deployed"}}
DEFER = ("hook", "--wait", "0", "--pending", "defer")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def decision(shell: Shell, *arguments: str, given: Any = BEFORE) -> str:
    done = shell.run(*arguments, stdin=json.dumps(given))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"]


def answered(shell: Shell) -> None:
    async def work(checkpointer: SqlCheckpointer) -> None:
        async with Gate(checkpointer) as gate:
            await gate.answer("claude:5f0c:toolu_01", {"decision": "approve"}, by="ada")

    shell.on_database(work)


def test_a_call_is_deferred_then_allowed_once_each_in_a_process_of_its_own(shell: Shell) -> None:
    assert decision(shell, *DEFER) == "defer"
    answered(shell)
    assert decision(shell, *DEFER) == "allow"
    done = shell.run(*DEFER, stdin=json.dumps(AFTER))
    assert (done.returncode, json.loads(done.stdout)) == (0, {})
    assert decision(shell, *DEFER) == "deny"


def test_it_denies_if_nobody_decides(shell: Shell) -> None:
    assert decision(shell, "hook", "--wait", "0") == "deny"


def test_a_policy_decides(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(
        '{"rules": [{"id": "no-shell", "scope": {"tool": "Bash"}, "effect": "deny"}]}'
    )
    assert decision(shell, "hook", "--policy", "policy.json") == "deny"


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (DEFER, "no json", "not JSON"),
        (DEFER, "[]", "not a JSON object"),
        (DEFER, '{"hook_event_name": "PreToolUse"}', "no tool_name"),
        (("hook", "--wait", "soon"), json.dumps(BEFORE), "--wait"),
        (("hook", "--policy", "missing.yaml"), json.dumps(BEFORE), "missing.yaml"),
        (("hook", "--timeout", "soon"), json.dumps(BEFORE), "soon"),
    ],
)
def test_whatever_goes_wrong_blocks_the_call(
    shell: Shell, arguments: tuple[str, ...], stdin: str, said: str
) -> None:
    done = shell.run(*arguments, stdin=stdin)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_database_that_cannot_be_opened_blocks_the_call(shell: Shell) -> None:
    shell.environment["ASKFIRST_DATABASE_URL"] = "sqlite:////nowhere/at/all/a.db"
    assert shell.run(*DEFER, stdin=json.dumps(BEFORE)).returncode == 2
    shell.environment["ASKFIRST_DATABASE_URL"] = "sqlite:///"
    assert shell.run(*DEFER, stdin=json.dumps(BEFORE)).returncode == 2


def test_a_call_that_ran_unasked_is_reported_to_claude(shell: Shell) -> None:
    assert decision(shell, *DEFER) == "defer"
    done = shell.run(*DEFER, stdin=json.dumps(AFTER))
    assert done.returncode == 2
    assert "although nobody had approved it" in done.stderr


def test_the_shipped_policy_is_about_the_project_wherever_the_agent_went(
    shell: Shell, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    shell.environment["CLAUDE_PROJECT_DIR"] = str(project)
    for number, (path, cwd, expected) in enumerate(
        [
            (f"{project}/main.py", "/", "allow"),
            ("main.py", str(project), "allow"),
            ("main.py", "/", "deny"),  # asked, and nobody decides
            (f"{tmp_path}/main.py", str(tmp_path), "deny"),
            (f"{project}/.env", str(project), "deny"),
        ]
    ):
        event = {**BEFORE, "tool_name": "Read", "tool_input": {"file_path": path}, "cwd": cwd}
        given = {**event, "tool_use_id": f"toolu_{number}"}
        assert decision(shell, "hook", "--policy", "coding-agent", "--wait", "0", given=given) == expected
