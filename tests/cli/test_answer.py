"""askfirst answer and askfirst cancel: each kind, each store, and never anything but what was shown."""

from __future__ import annotations

import json
import os
import pwd
import time
from pathlib import Path
from typing import Any

import pytest
from kit.cli_rig import Shell, call, run_command
from kit.patience import PATIENCE
from kit.stores import SHARED, Database

from askfirst import Agent, tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.requests import (
    ApproveAnswer,
    AskRequest,
    ConfirmRequest,
    EscalateAnswer,
    EscalateRequest,
    Option,
    Question,
)
from askfirst.service.audit import export

on_each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
USER = pwd.getpwuid(os.getuid()).pw_name
COLOURS = [Option(label="Red", value="red"), Option(label="Blue", value="blue")]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def trail(shell: Shell) -> list[dict[str, Any]]:
    """The audit trail."""

    async def work(checkpointer: Any) -> list[dict[str, Any]]:
        return [json.loads(line) async for line in export(checkpointer.engine)]

    return shell.on_database(work)


def case_rows(shell: Shell) -> list[dict[str, Any]]:
    """What it says of cases."""
    return [row for row in trail(shell) if row["act"].startswith("case.")]


@on_each_store
def test_requests_and_cases_are_answered_and_cancelled(database: Database, tmp_path: Path) -> None:
    shell = Shell.on(database, tmp_path)
    shell.ask(call("send", to="a@example.org", count=1), "call-1")
    shell.ask(ConfirmRequest(prompt="Really?"), "q2")
    case_id = shell.open_case(type="approval", prompt="Ship it?")
    printed, edited = shell.printed("call-1"), '{"to": "b@example.org", "count": 2}'
    assert shell("answer", printed, "--edit", "-", stdin=edited) == f"Answered {printed}.\n"
    settled = shell.request("call-1")
    assert (settled.status, settled.answered_by, settled.via) == ("answered", USER, "cli")
    assert settled.answer == ApproveAnswer(decision="edit", edited_args={"to": "b@example.org", "count": 2})
    assert shell("cancel", shell.printed("q2"), "--reason", "too late").startswith("Cancelled ")
    settled = shell.request("q2")
    assert (settled.status, settled.reason, settled.answered_by) == ("cancelled", "too late", USER)
    assert shell("answer", case_id[7:15], "--deny", "not yet") == f"Answered {case_id[7:15]}.\n"
    case = shell.case(case_id)
    assert (case.status, case.result) == ("completed", {"action": "reject", "data": {"feedback": "not yet"}})
    assert case.responded_by == {"name": USER}
    last = trail(shell)[-1]
    assert (last["act"], last["actor"], last["subject"]) == ("case.answered", USER, case_id)
    hashes = {name: last["detail"].pop(name) for name in ("shown_sha256", "result_sha256")}
    assert all(len(each) == 64 for each in hashes.values())
    assert last["detail"] | {"type": ""} == {
        "action": "reject",
        "via": "cli",
        "known_by": "login",
        "type": "",
    }
    assert "already; nothing was changed" in shell.fails(4, "answer", case_id, "--approve")
    assert "already; nothing was changed" in shell.here("cancel", case_id, code=4)
    assert "is answered already; nothing was changed" in shell.here("answer", printed, "--approve", code=4)
    assert shell.here("pending") == "Nothing waits for a person.\n"


@on_each_store
def test_of_many_who_answer_at_once_one_wins(database: Database, tmp_path: Path) -> None:
    shell = Shell.on(database, tmp_path)
    shell.ask(call("send", to="x"), "call-1")
    case_id = shell.open_case(type="confirmation", prompt="Ship it?")
    printed = shell.printed("call-1")
    said = [(printed, "--approve"), (printed, "--deny", "no"), (case_id, "--approve"), (case_id, "--deny")]
    processes = [shell.start("answer", *each) for each in said]
    outcomes = [(process.communicate(timeout=PATIENCE), process.returncode) for process in processes]
    codes = [code for _, code in outcomes]
    assert sorted(codes[:2]) == sorted(codes[2:]) == [0, 4], outcomes
    for (out, err), code in outcomes:
        assert (err == "") == (code == 0)
        assert "Traceback" not in err
        assert (out == "") == (code != 0)
    answer = shell.request("call-1").answer
    assert isinstance(answer, ApproveAnswer)
    assert answer.decision == ("approve" if codes[0] == 0 else "deny")
    assert shell.case(case_id).result["action"] == ("confirm" if codes[2] == 0 else "cancel")


@pytest.mark.anyio
async def test_an_agent_goes_on_when_it_is_answered_from_the_command_line(tmp_path: Path) -> None:
    shell, sent = Shell(tmp_path), list[str]()

    @tool(requires_approval=True)
    async def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return "sent"

    async with SQLiteCheckpointer(tmp_path / "askfirst.db") as checkpointer:
        model = ScriptedModel([ToolCall("call-1", "send", {"to": "a"}), "Done."])
        agent = Agent(id="mailer", model=model, tools=[send], checkpointer=checkpointer, thread_id="t")
        assert (await agent.prompt("Send it")).status == "paused"
        code, out, err = await run_command(shell, "pending")
        assert (code, err) == (0, "")
        assert '  mailer  approve: send {"to": "a"}' in out
        printed = out.splitlines()[1].split()[0]
        wrong = await run_command(shell, "answer", printed, "--edit", "/dev/stdin")
        assert wrong[0] == 1
        assert (await run_command(shell, "answer", printed, "--set", "to=b"))[0] == 0
        result = await agent.resume()
    assert (result.status, result.text, sent) == ("completed", "Done.", ["b"])


# What was seen is what counts.


def test_an_id_stands_for_one_round_and_no_other(shell: Shell) -> None:
    shell.ask(call("pay", amount=1), "call-1")
    (seen,) = [json.loads(line)["id"] for line in shell.here("pending", "--json").splitlines()]
    printed = shell.printed("call-1")
    shell.ask(call("pay", amount=1_000_000), "call-1")
    assert "is superseded already; nothing was changed" in shell.here("answer", seen, "--approve", code=4)
    assert "is superseded already; nothing was changed" in shell.here("answer", printed, "--approve", code=4)
    said = shell.here("answer", "call-1", "--approve", code=4)
    assert shell.request("call-1").status == "pending"
    now = shell.printed("call-1")
    assert now != printed
    assert now in said
    shell.here("answer", now, "--approve")
    assert shell.request("call-1").status == "answered"


def test_a_question_that_is_asked_anew_while_it_is_answered_keeps_its_own_answer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from askfirst.cli import answer

    shell.ask(ConfirmRequest(prompt="Delete one?"))
    find_open = answer.find_open

    async def find_then_ask_again(checkpointer: Any, text: str) -> Any:
        found = await find_open(checkpointer, text)
        again = found.request.model_copy(update={"payload": ConfirmRequest(prompt="Delete all?")})
        await checkpointer.save_pending_request("t1", again)
        return found

    monkeypatch.setattr(answer, "find_open", find_then_ask_again)
    assert "already settled (superseded)" in shell.here("answer", shell.printed(), "--approve", code=4)
    assert shell.request().status == "pending"
    assert "Delete all?" in str(shell.request().request.payload)


def test_the_case_of_a_request_ends_with_it(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="Really?"))
    shell.ask(ConfirmRequest(prompt="Again?"), "q2")
    first, second = sorted(shell.adopt(), key=lambda case_id: shell.case(case_id).prompt, reverse=True)
    shell.here("answer", first, "--approve", "--by", "ann")
    shell.here("cancel", second, "--by", "ann")
    assert [shell.case(each).status for each in (first, second)] == ["completed", "cancelled"]
    assert shell.case(first).result == {"action": "confirm", "data": {}}
    assert [(row["act"], row["actor"]) for row in case_rows(shell)[-2:]] == [
        ("case.completed", USER),
        ("case.cancelled", USER),
    ]
    assert [row["detail"]["claimed"] for row in case_rows(shell)[-2:]] == ["ann", "ann"]


def test_too_late_is_too_late(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="Really?"), age=100, timeout_seconds=50.0)
    assert "  late  " in shell.here("pending")
    assert "was already settled (timed_out)" in shell.here("answer", shell.printed(), "--approve", code=4)
    assert shell.request().status == "timed_out"
    case_id = shell.open_case(type="input", prompt="Name?", timeout="1s")
    deadline = shell.case(case_id).expires_at
    while time.time() <= deadline:
        time.sleep(0.05)
    assert "has passed" in shell.here("answer", case_id, "--set", "name=x", code=4)


# Every kind.


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["--approve"], ApproveAnswer(decision="approve")),
        (["--deny"], ApproveAnswer(decision="deny")),
        (["--deny", "because"], ApproveAnswer(decision="deny", reason="because")),
        (
            ["--set", "n=2"],
            ApproveAnswer(decision="edit", edited_args={"n": 2, "s": "1", "l": [1], "x": None}),
        ),
        (
            ["--set", "s=2", "--set", 'l=["="]', "--set", "x=free"],
            ApproveAnswer(decision="edit", edited_args={"n": 1, "s": "2", "l": ["="], "x": "free"}),
        ),
    ],
)
def test_approve(shell: Shell, options: list[str], answer: ApproveAnswer) -> None:
    shell.ask(call("send", n=1, s="1", l=[1], x=None))
    shell.here("answer", shell.printed(), *options)
    assert shell.request().answer == answer


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["--set", "colour=red"], {"colour": ["red"]}),
        (
            ["--set", "colour=red", "--set", "colour=blue", "--set", "why=a=b"],
            {"colour": ["red", "blue"], "why": "a=b"},
        ),
    ],
)
def test_ask(shell: Shell, options: list[str], answer: Any) -> None:
    colour = Question(key="colour", prompt="Which?", options=COLOURS, multi_select=True)
    shell.ask(AskRequest(questions=[colour, Question(key="why", prompt="Why?", required=False)]))
    shell.here("answer", shell.printed(), *options)
    assert shell.request().answer == answer


@pytest.mark.parametrize("options", [["--choose", "red"], ["--set", "colour=red"]])
def test_a_single_question_takes_a_choice(shell: Shell, options: list[str]) -> None:
    shell.ask(AskRequest(questions=[Question(key="colour", prompt="Which?", options=COLOURS)]))
    shell.here("answer", shell.printed(), *options)
    assert shell.request().answer == {"colour": "red"}


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["--choose", "skip"], EscalateAnswer(action="skip")),
        (
            ["--choose", "retry", "--set", "n=2"],
            EscalateAnswer(action="retry", modified_params={"n": 2, "to": "a"}),
        ),
    ],
)
def test_escalate(shell: Shell, options: list[str], answer: Any) -> None:
    details: Any = {"tool_name": "send", "args": {"n": 1, "to": "a"}}
    shell.ask(EscalateRequest(prompt="It failed", choices=["retry", "skip", "abort"], details=details))
    shell.here("answer", shell.printed(), *options)
    assert shell.request().answer == answer


FORM = {
    "fields": [
        {"key": "age", "label": "Age", "type": "number", "required": True},
        {"key": "ok", "label": "OK", "type": "boolean"},
        {"key": "tags", "label": "Tags", "type": "multiselect", "options": [{"value": "a", "label": "A"}]},
        {"key": "note", "label": "Note", "type": "text", "sensitive": True},
    ]
}
ITEMS = [{"id": "x", "title": "X"}, {"id": "y", "title": "Y"}]


@pytest.mark.parametrize(
    ("review", "options", "result"),
    [
        ({"type": "approval"}, ["--approve"], ("approve", {})),
        ({"type": "approval"}, ["--set", "a=1"], ("edit", {"edits": {"a": "1"}})),
        ({"type": "confirmation"}, ["--approve"], ("confirm", {})),
        ({"type": "confirmation"}, ["--deny", "no"], ("cancel", {"note": "no"})),
        (
            {"type": "confirmation", "context": {"items_to_confirm": ["a", "b"]}},
            ["--approve", "--choose", "b"],
            ("confirm", {"confirmed_items": ["b"]}),
        ),
        (
            {"type": "selection", "context": {"items": ITEMS}},
            ["--choose", "y"],
            ("select", {"selected": ["y"]}),
        ),
        ({"type": "x-form"}, ["--set", "a=1"], ("submit", {"a": "1"})),
        (
            {"type": "input", "context": {"form": FORM}},
            ["--set", "age=7.5", "--set", "ok=true", "--set", "tags=a", "--set", "note=1"],
            ("submit", {"age": 7.5, "ok": True, "tags": ["a"], "note": "1"}),
        ),
        ({"type": "escalation"}, ["--choose", "abort"], ("abort", {})),
        (
            {"type": "escalation", "context": {"params": {"n": 1}}},
            ["--choose", "retry", "--set", "n=2"],
            ("retry", {"modified_params": {"n": 2}}),
        ),
    ],
)
def test_cases_of_services(
    shell: Shell, review: dict[str, Any], options: list[str], result: tuple[str, Any]
) -> None:
    case_id = shell.open_case(prompt="Well?", **review)
    shell.here("answer", case_id, *options)
    assert shell.case(case_id).result == {"action": result[0], "data": result[1]}


# What does not fit.


def test_each_fault_is_named_and_nothing_is_changed(shell: Shell, tmp_path: Path) -> None:
    shell.ask(call("send", n=1, to="a"), "call")
    said = shell.here(
        "answer", shell.printed("call"), "--set", "n=many", "--set", "n2=1", "--set", "n2=2", code=1
    )
    assert said == "Error: this answer does not fit, nothing was changed: n is a number; n2 is given twice.\n"
    (tmp_path / "args.json").write_text('{"n": "1", "zz": 1}')
    said = shell.here("answer", shell.printed("call"), "--edit", str(tmp_path / "args.json"), code=1)
    for fault in ("n must be a number", "zz is not an argument of this call", "to is missing"):
        assert fault in said
    colour = Question(key="colour", prompt="Which?", options=COLOURS)
    shell.ask(AskRequest(questions=[colour, Question(key="why", prompt="Why?")]), "ask")
    said = shell.here("answer", shell.printed("ask"), "--set", "colour=green", "--set", "size=1", code=1)
    for fault in (
        "size: no such question",
        "colour: the answer is not one of red, blue",
        "why: an answer is required",
    ):
        assert fault in said
    said = shell.here(
        "answer",
        shell.printed("ask"),
        "--set",
        "colour=red",
        "--set",
        "colour=blue",
        "--set",
        "why=x",
        code=1,
    )
    assert "colour: one value is expected" in said
    case_id = shell.open_case(type="input", prompt="Who?", context={"form": FORM})
    said = shell.here("answer", case_id, "--set", "age=x", "--set", "ok=maybe", code=1)
    assert said.endswith("nothing was changed: age is a number; ok is true or false.\n")
    said = shell.here("answer", case_id, "--set", "tags=b", "--set", "note=hunter2", "--set", "zz=1", code=1)
    assert "age is required" in said
    assert "hunter2" not in said
    assert [shell.request(each).status for each in ("call", "ask")] == ["pending"] * 2
    assert shell.case(case_id).status == "pending"


def test_the_tools_own_parameters_are_checked(shell: Shell) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10}}, "required": ["n"]}
    shell.ask(call("send", n=1).model_copy(update={"args_schema": schema}))
    assert "10" in shell.here("answer", shell.printed(), "--set", "n=11", code=1)
    assert shell.request().status == "pending"
    shell.here("answer", shell.printed(), "--set", "n=9")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "answered with: --approve | --deny [REASON] | --edit FILE"),
        (["--approve", "--deny"], "answered with"),
        (["--approve", "--set", "n=2"], "answered with"),
        (["--choose", "x"], "answered with"),
        (["--set", "n=1"], "nothing is changed by that: say --approve"),
    ],
)
def test_options_that_do_not_answer_it(shell: Shell, options: list[str], problem: str) -> None:
    shell.ask(call("send", n=1))
    assert problem in shell.here("answer", shell.printed(), *options, code=2)
    assert shell.request().status == "pending"


def test_a_yes_or_no_keeps_no_reason(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="Really?"))
    assert "say --deny alone" in shell.here("answer", shell.printed(), "--deny", "no", code=2)
    shell.here("answer", shell.printed(), "--deny")
    assert shell.request().answer is False


def test_usage(shell: Shell) -> None:
    for arguments, problem in (
        (("--set", "n"), "'n' is not of the form NAME=VALUE"),
        (("--edit", "nowhere.json"), "No such file"),
        (("--by", ""), "a name has 1 to 255 printable characters"),
        (("--by", "a\nb"), "a name has 1 to 255 printable characters"),
    ):
        done = Shell(shell.folder, in_process=True).run("answer", "12345678", *arguments)
        assert done.returncode == 2
        assert problem in done.stderr


def test_what_is_edited_is_an_object_of_json(shell: Shell) -> None:
    for text, problem in (
        ("{", "is not JSON: "),
        ("[1]", "has to hold a JSON object"),
        ('{"a": NaN}', "is not JSON: "),
    ):
        assert problem in Shell(shell.folder, in_process=True).fails(
            1, "answer", "12345678", "--edit", "-", stdin=text
        )


def test_an_item_list_is_confirmed_item_by_item(shell: Shell) -> None:
    case_id = shell.open_case(type="confirmation", prompt="Well?", context={"items_to_confirm": ["a"]})
    assert "--choose ITEM for each" in shell.here("answer", case_id, "--approve", code=2)


# Who.


def test_who_answers_is_the_account_and_no_variable(shell: Shell) -> None:
    shell.environment |= {"LOGNAME": "mallory", "USER": "mallory"}
    shell.ask(ConfirmRequest(prompt="Really?"))
    shell("answer", shell.printed(), "--approve")
    assert shell.request().answered_by == USER


def test_a_name_that_was_typed_is_for_the_record_only(shell: Shell) -> None:
    case_id = shell.open_case(type="input", prompt="Name?")
    shell.here("answer", case_id, "--set", "name=x", "--by", "ann")
    assert shell.case(case_id).responded_by is None
    last = trail(shell)[-1]
    assert (last["actor"], last["detail"]["claimed"]) == (USER, "ann")
    assert (last["detail"]["via"], "known_by" in last["detail"]) == ("cli", False)


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        ({"verify_email": "ann@example.org"}, "a code that is sent by e-mail"),
        (
            {
                "verification_policy": {
                    "mode": "required",
                    "required_for": ["browser_submit"],
                    "requirements": {"any_of": [{"all_of": [{"proof_type": "proof_of_human"}]}]},
                    "binding": {"case_id": True, "action": True, "freshness_seconds": 60, "single_use": True},
                    "fallback": {"on_missing": "browser_review", "on_invalid": "browser_review"},
                }
            },
            "a proof that a person decided",
        ),
    ],
)
def test_what_needs_a_proof_is_answered_on_its_page(
    shell: Shell, needs: dict[str, Any], problem: str
) -> None:
    case_id = shell.open_case(type="approval", prompt="Ship it?", **needs)
    said = shell.here("answer", case_id, "--approve", code=1)
    assert problem in said
    assert "answer it on its page" in said
    assert shell.case(case_id).status == "pending"
