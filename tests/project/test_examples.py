"""Every example runs and prints what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.paths import ROOT
from kit.warm_python import warm_python

EXAMPLES = ROOT / "examples"

PRINTED = {
    "fifteen_lines.py": "We were out of tea. I ordered 5.\n",
    "streaming.py": """\
On it.\x20
  index: 1 of 4 files
  index: 2 of 4 files
  index: 3 of 4 files
  index: 4 of 4 files
  index: done
All four are indexed.
completed
28 events, the last with seq 27
""",
    "middleware.py": """\
read_customer: Ada Ngo, card **** 1234
send_mail: Mail goes to addresses at example.com only.
send_mail: sent to desk@example.com
I could not write to Ada herself, so the desk will call her.
""",
    "tools_by_hand.py": """\
ok - DE1234
error - The arguments of transfer are invalid, so it was not run. account: String should match pattern \
'^[A-Z]{2}\\d{4}$'. It takes a JSON object with: account, cents, speed (optional).
ok - 49.00 sent to DE1234
Done.
""",
    "account_deletion.py": """\
paused: call_delete wants delete_account {'account_id': '12345'}
because rule 'deletions' requires approval
approve or deny WHY >   (deleting 12345)
completed: The result was: account 12345 is gone
""",
    "two_children.py": """\
paused: 2 calls wait for a person
  call_a/call_1: support > refunds > issue_refund {'order': 'A-1042', 'cents': 4900}
  call_b/call_1: support > letters > send_mail {'to': 'ada@example.com', 'text': 'We are sorry.'}
a person approves call_b/call_1
  (send_mail runs: 'We are sorry.' to ada@example.com)
paused: 1 call waits for a person
  call_a/call_1: support > refunds > issue_refund {'order': 'A-1042', 'cents': 4900}
a person approves call_a/call_1
  (issue_refund runs: 49.00 EUR for A-1042)
completed: Done: 49.00 EUR were sent for A-1042. Done: mail sent to ada@example.com.
""",
    "approve_in_terminal.py": """\
    run │ agent starts
    you │ Pay Ada what we owe her.
   call │ look_up {"name": "Ada"}
 result │ look_up: we owe Ada 49.00 EUR
   call │ pay {"to": "Ada", "cents": 490000}
   asks │ approve c2 within 600 s
        │ pay {"to": "Ada", "cents": 490000}
approve, deny WHY or edit JSON > decision: Input should be 'approve', 'deny' or 'edit'
approve, deny WHY or edit JSON > cents: Field required
approve, deny WHY or edit JSON >  answer │ c2: {"decision": "edit", "edited_args": {"to": "Ada", "cents": 4900}}
   runs │ pay {"to": "Ada", "cents": 4900}
 result │ pay: Note: a person changed the arguments before this ran. It ran with {"to": "Ada", "cents": 4900}. \
Its result:
        │ 49.00 EUR sent to Ada
  agent │ The result was: 49.00 EUR sent to Ada
    run │ completed
""",
}
TYPED = {
    "account_deletion.py": "approve\n",
    "approve_in_terminal.py": 'yes\nedit {"to": "Ada"}\nedit {"to": "Ada", "cents": 4900}\n',
}


def test_no_example_is_forgotten() -> None:
    """Others have tests of their own: test_demo.py, test_guides.py, and test_examples_engines.py."""
    of_the_gate = {f"gate_{kind}.py" for kind in ("script", "fastapi", "flask", "celery")}
    of_chats = {"slack_bot.py", "telegram_bot.py", "local_telegram.py"}
    first_page = "ten_lines.py"
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*PRINTED, *of_the_gate, *of_chats, first_page}, (
        "those of the gate are tried in test_examples_gate.py and test_first_page.py, those of chats in tests/chat"
    )
    assert {path.parent.name for path in EXAMPLES.glob("*/*.py")} == {
        "checkpoint_bot",
        "cross_process",
        "demo",
        "engines",
        "local_slack",
        "meets_a_202",
    }


def run(name: str, folder: Path, *args: str, typed: str = "", cold: bool = False) -> str:
    """What an example prints; it must end well and have nothing to complain about."""
    done = subprocess.run(  # noqa: S603
        [*([sys.executable] if cold else warm_python()), "-W", "error", str(EXAMPLES / name), *args],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    assert run(name, tmp_path, typed=TYPED.get(name, ""), cold=True) == PRINTED[name]


@pytest.mark.parametrize(
    ("typed", "came_of_it"),
    [
        ("approve\n", "4900.00 EUR sent to Ada"),
        ("deny ten times too much", "A person denied pay: ten times too much"),
        ("", "pay was not run: the request was cancelled (nobody is at the keyboard)."),
    ],
)
def test_any_answer_in_the_terminal(typed: str, came_of_it: str, tmp_path: Path) -> None:
    printed = run("approve_in_terminal.py", tmp_path, typed=typed)
    assert printed.endswith(f"  agent │ The result was: {came_of_it}\n    run │ completed\n")


@pytest.mark.parametrize(
    ("typed", "came_of_it"),
    [
        (
            "deny she has open orders\n",
            "completed: The result was: A person denied delete_account: ",
        ),
        ("perhaps\n", "paused: 1 call waits for a person\n"),
        ("", "nobody is at the keyboard\npaused: 1 call waits for a person\n"),
    ],
)
def test_no_account_is_deleted_without_a_yes(typed: str, came_of_it: str, tmp_path: Path) -> None:
    printed = run("account_deletion.py", tmp_path, typed=typed)
    assert came_of_it in printed
    assert "deleting" not in printed


def bot(folder: Path, step: str, *args: str) -> str:
    return run(f"checkpoint_bot/{step}.py", folder, *args)


def buttons(printed: str) -> dict[str, str]:
    """What can be pressed: the checkpoint of each call."""
    return {call: checkpoint for checkpoint, call in re.findall(r"press\.py (\w+) (\w+) ", printed)}


def test_a_bot_resumes_after_a_restart_and_a_button_counts_once(tmp_path: Path) -> None:
    first = buttons(bot(tmp_path, "message"))
    assert list(first) == ["call_cancel", "call_refund"]
    old = first["call_refund"]

    second = bot(tmp_path, "press", old, "call_refund", "approve")
    assert "runs" not in second  # nothing starts before all is settled
    assert list(buttons(second)) == ["call_cancel"]
    new = buttons(second)["call_cancel"]

    for call in first:
        assert bot(tmp_path, "press", old, call, "approve") == "bot: too late, this one is resolved.\n"
    assert bot(tmp_path, "press", new, "call_refund", "deny") == (
        "bot: 'call_refund' is not pending here; what is: call_cancel\n"
    )
    assert (
        bot(tmp_path, "waiting") == f"{old} resolved: call_cancel, call_refund\n{new} pending: call_cancel\n"
    )

    assert bot(tmp_path, "press", new, "call_cancel", "deny") == (
        "(refund runs: 49.00 EUR for A-1042)\nbot: A person denied cancel_order. 49.00 EUR were sent.\n"
    )
    assert bot(tmp_path, "press", new, "call_cancel", "approve") == "bot: too late, this one is resolved.\n"


@pytest.mark.parametrize("args", [(), ("sqlite:///elsewhere.db",)])
def test_one_process_asks_another_answers_a_third_resumes(args: tuple[str, ...], tmp_path: Path) -> None:
    steps = [
        ("ask", "paused: 1 call waits for a person\n"),
        ("resume", "paused: 1 call waits for a person\n"),
        ("answer", 'ticket-1042 asks: refund {"order": "A-1042", "cents": 4900}\napproved\n'),
        ("answer", "nothing waits for an answer\n"),
        (
            "resume",
            "refund runs: 49.00 EUR for A-1042\ncompleted: Dear customer: 49.00 EUR were sent.\n",
        ),
        ("resume", "completed: Dear customer: 49.00 EUR were sent.\n"),
    ]
    for step, printed in steps:
        assert run(f"cross_process/{step}.py", tmp_path, *args) == printed
    name = "elsewhere.db" if args else "cross_process.db"
    assert (tmp_path / name).is_file()
