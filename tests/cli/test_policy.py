"""``askfirst policy``: mistakes by line, what a file decides and why, and the policy to start from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.cli_rig import Shell

from askfirst.permissions.shipped import shipped_text

RULES = """default: ask
rules:
  - {id: look, scope: {tool: "read_*"}, effect: allow}
  - id: small
    scope: {tool: refund, arg_constraints: [{path: cents, lte: 500}]}
    effect: allow
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "policy.yaml").write_text(RULES)
    (tmp_path / "action.json").write_text(json.dumps({"tool": "refund", "args": {"cents": 987654}}))
    return Shell(tmp_path, in_process=True)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_sound_file(shell: Shell) -> None:
    assert shell("policy", "check", "policy.yaml") == "policy.yaml: 2 rules; a call that none matches: ask.\n"


def test_every_mistake_is_named_by_its_line(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(RULES.replace("effect: allow}", "effect: alow}") + "  - {}\n")
    done = shell.run("policy", "check", "policy.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "policy.yaml:3: rule 'look': effect is one of" in done.stderr
    assert "policy.yaml:7: rule number 3: it needs an id" in done.stderr


def test_a_rule_that_is_never_reached_fails_the_check(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        RULES + "  - {id: secret, scope: {tool: read_secret}, effect: deny}\n"
    )
    done = shell.run("policy", "check", "policy.yaml")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("policy.yaml:7: rule 'secret' can never be reached")


def test_why_a_call_is_decided_as_it_is(shell: Shell) -> None:
    said = shell("policy", "explain", "policy.yaml", "action.json")
    assert said == (
        "rule 'look' does not match: it is about tool 'read_*', and this is 'refund'\n"
        "rule 'small' does not match: 'cents' fails the test 'lte'\n"
        "no rule matched: the default is ask\n"
        "So the verdict is: ask.\n"
    )
    assert "987654" not in said


def test_the_same_as_json_and_from_standard_input(shell: Shell) -> None:
    said = shell(
        "policy", "explain", "policy.yaml", "-", "--json", stdin='{"tool": "refund", "args": {"cents": 1}}'
    )
    assert json.loads(said) == {
        "verdict": "allow",
        "rule": "small",
        "because": "rule 'small' allows it",
        "passed": [{"rule": "look", "why": "it is about tool 'read_*', and this is 'refund'"}],
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "action.json is not JSON in UTF-8"),
        ("[]", "action.json is not an object with tool, args, toolset, principal"),
        ("{}", "action.json has no tool, the name of what is called"),
        ('{"tool": "x", "arguments": {}}', "action.json has arguments; a call has tool, args"),
        ('{"tool": "x", "args": []}', "action.json has args that is not an object"),
    ],
)
def test_what_is_no_action(shell: Shell, tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "action.json").write_text(text)
    assert sentence in shell.fails(1, "policy", "explain", "policy.yaml", "action.json")


def test_a_file_that_is_not_there(shell: Shell) -> None:
    assert "nothing.json cannot be read" in shell.fails(1, "policy", "explain", "policy.yaml", "nothing.json")
    assert "nothing.yaml: cannot be read" in shell.fails(1, "policy", "check", "nothing.yaml")


def test_the_policy_to_start_from(shell: Shell, tmp_path: Path) -> None:
    assert shell("policy", "show", "coding-agent") == shipped_text("coding-agent", tmp_path)
    assert shell("policy", "check", "coding-agent").startswith("coding-agent: 43 rules;")
    action = '{"tool": "Read", "args": {"file_path": "main.py"}}'
    said = shell("policy", "explain", "coding-agent", "-", stdin=action)
    assert said.endswith("rule 'inside-read' allows it\nSo the verdict is: allow.\n")
