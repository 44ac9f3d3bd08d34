"""The bots of the examples, against the platforms on this machine: the person is played, and the tool runs once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.paths import ROOT
from kit.patience import PATIENCE

STORY = {
    "slack_bot.py": """\
Ada: @askfirst cancel my order A-1042
the agent asks: ['Approve', 'Reject', 'Edit…']
kill -9
Ada presses Approve, on another worker
(cancel_order runs: A-1042)
Ada presses Approve, on another worker
| I will see to it.
| It ran: A-1042 is cancelled.
| It ran: ID
| For the record: A-1042 is cancelled.
| That is all.
success
""",
    "telegram_bot.py": """\
Ada: cancel my order A-1042
the agent asks: ['Approve', 'Reject']
kill -9
Ada presses Approve, in another process
(cancel_order runs: A-1042)
Ada presses Approve, in another process
| I will see to it.
| Approved by Ada. It ran: A-1042 is cancelled.
| Approved by Ada. It ran: ID
| For the record: A-1042 is cancelled.
| That is all.
success
""",
}


@pytest.mark.parametrize("name", STORY)
def test_a_bot_tells_its_story_on_this_machine(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-u", str(ROOT / "examples" / name), "--local", "--auto"]
    done = subprocess.run(  # noqa: S603
        command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines(keepends=True)
    posted = [each.replace(each.split("It ran: ")[1], "ID\n") if _is_id(each) else each for each in lines]
    assert "".join(posted) == STORY[name]


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (
            "slack_bot.py",
            {"SLACK_BOT_TOKEN": "xoxb-1"},
            "set SLACK_APP_TOKEN, SLACK_PEOPLE; or try it without an account",
        ),
        (
            "telegram_bot.py",
            {"TELEGRAM_BOT_TOKEN": "1:a", "TELEGRAM_PEOPLE": "Ada"},
            "the people are pairs of an account and a name",
        ),
    ],
)
def test_a_bot_without_its_settings_says_what_to_set(
    name: str, given: dict[str, str], said: str, tmp_path: Path
) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLACK_", "TELEGRAM_"))}
    command = [sys.executable, str(ROOT / "examples" / name)]
    done = subprocess.run(  # noqa: S603
        command,
        cwd=tmp_path,
        env={**kept, **given},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def _is_id(line: str) -> bool:
    """Whether a line says what the tool that posts has returned: the id of a message."""
    return "It ran: " in line and line.split("It ran: ")[1].strip().replace(".", "").isdigit()
