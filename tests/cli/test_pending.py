"""askfirst pending and askfirst show: everything that waits, and each of it whole."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kit.cli_rig import Shell, call
from kit.patience import PATIENCE
from kit.stores import SHARED, Database
from kit.terminal_screens import screen

from askfirst.cli.find import shortened
from askfirst.cli.output import exact_json, span
from askfirst.cli.serve import greet
from askfirst.display import Display
from askfirst.requests import AskRequest, ConfirmRequest, EscalateRequest, Option, Question

HOSTILE = "a\u202eb\u200bc\x1b[31m\x07\x7f\u2028\u00a0d\\u202e \U000e0041 \ufeff"
on_each_store = pytest.mark.parametrize("database", SHARED, indirect=True)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@on_each_store
def test_all_that_waits_is_listed_and_shown(database: Database, tmp_path: Path) -> None:
    shell = Shell.on(database, tmp_path)
    shell.ask(ConfirmRequest(prompt="Really?"), age=7300)
    shell.ask_in_run(call("pay", "call-1", amount=5), "call-1", "t2", "treasurer")
    case_id = shell.open_case(type="approval", prompt="Ship it?", context={"order": 7}, timeout="2h")
    head, first, second, third = shell("pending").splitlines()
    assert head.split() == ["ID", "DUE", "RISK", "FROM", "WHAT"]
    assert re.fullmatch(r"[0-9a-f]{8}  119m  normal  billing    approve: Ship it\?", first)  # due first
    assert re.fullmatch(r"[0-9a-f]{8}  -     normal  t1 +confirm: Really\?", second)
    assert re.fullmatch(r"[0-9a-f]{8}  -     normal  treasurer  approve: pay \{\"amount\": 5\}", third)
    listed = shell.lines("pending", "--json")
    assert [item["kind"] for item in listed] == ["confirm", "approve", "approval"]
    assert listed[1] | {"created_at": 0, "id": ""} == {
        "id": "",
        "is_open": True,
        "source": "agent",
        "kind": "approve",
        "from": "treasurer",
        "prompt": "May pay run?",
        "created_at": 0,
        "expires_at": None,
        "status": "pending",
        "tool": "pay",
        "digest": call("pay", amount=5).digest,
        "thread_id": "t2",
        "question_id": "call-1",
        "round": 1,
    }
    assert listed[2]["id"] == case_id
    assert listed[2]["expires_at"] - listed[2]["created_at"] == pytest.approx(7_200)
    shown = json.loads(shell("show", third.split()[0], "--json"))
    assert (shown["id"], shown["request"]["args"]) == (listed[1]["id"], {"amount": 5})
    assert json.loads(shell("show", first.split()[0], "--json"))["case"]["context"] == {"order": 7}


def test_a_request_that_is_a_case_too_is_listed_once_and_has_the_cases_id(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="Really?"))
    before = shell.here("pending", "--json")
    adopted = shell.adopt()
    assert shell.here("pending", "--json") == before
    assert adopted == [json.loads(before)["id"]]
    assert "Really?" in shell.here("show", adopted[0])


def test_a_call_in_doubt_is_listed_and_shown_as_on_its_page(shell: Shell) -> None:
    about: dict[str, Any] = {"tool_name": "transfer", "tool_call_id": "call", "args": {"cents": 4900}}
    words = Display(sentence="Transfer {cents:money:EUR}").shown(about["args"])
    details = {**about, "attempt": 1, "agent_path": ["treasury"]}
    shell.ask(EscalateRequest(prompt="?", choices=["retry", "skip"], details=details, display=words))
    sentence = "Transfer 49.00 EUR: it may or may not have happened"
    line = shell.here("pending").splitlines()[1]
    assert re.fullmatch(rf"[0-9a-f]{{8}}  -    high  treasury  decide: {sentence}", line)
    shown = shell.here("show", line.split()[0])
    assert f"decide │ {sentence}" in shown
    assert "from │ the agent treasury, thread t1" in shown
    assert "tool │ transfer" in shown
    assert "arg │ cents = 49.00 EUR (4900)" in shown


def test_every_way_to_say_which(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="One"), "q/1", "t/1")
    shell.ask(ConfirmRequest(prompt="Two"), "q/1", "t/2")
    shell.ask(ConfirmRequest(prompt="Three"), "only", "t/2")
    ids = [json.loads(line)["id"] for line in shell.here("pending", "--json").splitlines()]
    printed = shell.printed("q/1", "t/1")
    for text in (ids[0], printed, "t/1/q/1"):
        assert "One" in shell.here("show", text)
    assert "Three" in shell.here("show", "t/2/only")
    for command in (["answer", "--approve"], ["cancel"], ["link"]):
        for text in ("only", "q/1", "t/1/q/1", "t/2/only"):
            said = shell.here(command[0], text, *command[1:], code=4)
            assert said.startswith(f"Error: {text} is no id of ours: an agent calls a question so")
    assert printed in shell.here("answer", "t/1/q/1", "--approve", code=4)
    unknown = (
        "nothing",
        "",
        "review_",
        ids[0][:15],
        printed[:7],
        "t/1/",
        "q/2",
        "\udcff",
        "review_" + "0" * 32,
    )
    for text in unknown:
        assert "nothing that is open has the id" in shell.here("show", text, code=4)
    shell.ask(ConfirmRequest(prompt="Four"), "1/q/1", "t")
    said = shell.here("show", "t/1/q/1", code=1)
    assert re.fullmatch(
        r"Error: t/1/q/1 could be any of \w{8} \(thread t\), \w{8} \(thread t/1\): use one of these ids.\n",
        said,
    )


def test_what_has_ended_says_how(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="Really?"))
    shell.on_database(lambda checkpointer: checkpointer.settle("t1", "q1", True, by="ann", via="web"))
    said = (
        r" asked │ “Really\?”\n +id │ \S+\n +status │ answered\n +ended │ Confirmed by ann \(unverified\).\n"
    )
    assert re.search(rf"{said} +at │ \S+Z\n +by │ ann\n +via │ web\n$", shell.here("show", "t1/q1"))
    case_id = shell.open_case(type="input", prompt="Name?")
    shell.here("cancel", case_id, "--reason", "no longer needed")
    ended = json.loads(shell.here("show", case_id, "--json"))
    assert ended | {"ended_at": 0} == {
        "is_open": False,
        "id": case_id,
        "kind": "input",
        "prompt": "Name?",
        "status": "cancelled",
        "ended_at": 0,
        "by": None,
        "via": None,
        "reason": "no longer needed",
        "action": None,
        "outcome": None,
    }


@on_each_store
def test_what_has_ended_is_found_by_its_short_id_with_decision_and_outcome(
    database: Database, tmp_path: Path
) -> None:
    shell = Shell.on(database, tmp_path)
    shell.ask(call("pay", "call-1", amount=5), "call-1")
    case_id = shell.open_case(type="approval", prompt="Ship it?")
    known = shell.printed("call-1")
    shell.here("answer", known, "--deny", "too much")
    shown = shell.here("show", known)
    assert re.search(
        r"  asked │ Pay\n     id │ review_\w+\n status │ answered\n  ended │ Rejected by ", shown
    )
    assert "outcome" not in shown  # what was denied does not run
    (whole,) = re.findall(r"review_\w+", shown)
    assert shell.here("show", whole) == shown
    assert "is answered already; nothing was changed" in shell.here("answer", whole, "--approve", code=4)
    assert "is answered already; nothing was changed" in shell.here("answer", known, "--approve", code=4)
    opened = case_id.removeprefix("review_")[:8]
    shell.here("cancel", opened)
    assert "  ended │ Nothing is left to decide, it was withdrawn" in shell.here("show", opened)
    shell.ask(call("pay", "call-2", amount=6), "call-2")
    again = shell.printed("call-2")
    shell.here("answer", again, "--approve")
    assert "outcome │ it has not run yet: no agent or worker has taken it up, " in shell.here("show", again)
    ended = json.loads(shell.here("show", again, "--json"))
    assert (ended["action"], ended["outcome"]) == ("approve", "waiting")


def test_values_are_shown_as_people_read_them_and_secrets_are_not(shell: Shell) -> None:
    args = {"cents": 4900, "token": "hush", "note": "a\u200bb", "none": None}
    display = Display(
        labels={"cents": "Amount"},
        formats={"cents": "money:EUR", "token": "secret"},
        consequences=["money"],
        risk="high",
    )
    payload = call("pay", "call-1", **args).model_copy(
        update={"display": display.shown(args), "details": {"reason": "Above 5 EUR.", "why": "x"}}
    )
    shell.ask(payload, "call-1")
    shown = shell.here("show", shell.printed("call-1"))
    for line in (
        "    arg │ Amount (cents) = 49.00 EUR (4900)\n",
        "    arg │ token = hidden\n",
        "    arg │ note = a<U+200B>b\n",
        "    arg │ none = null\n",
        "   risk │ high\n",
        " effect │ Money moves.\n",
        "    why │ Above 5 EUR.\n",
        " detail │ why = x\n",
    ):
        assert line in shown
    raw = shell.here("show", shell.printed("call-1"), "--raw")
    assert "    arg │ Amount (cents) = 4900\n" in raw
    assert '    arg │ note = "a\\u200bb"\n' in raw
    assert "hush" not in shown + raw


def test_risk_patterns_of_the_configuration_count(shell: Shell) -> None:
    shell.ask(call("run", "c1", command="rm -rf /srv"), "c1")
    assert "  high  " in shell("pending")
    (shell.folder / "own.toml").write_text("[[pattern]]\nname = \"x\"\nmatch = 'acme'\n")
    (shell.folder / "askfirst.toml").write_text('[service]\nrisk_patterns = "own.toml"\n')
    assert "  normal  " in shell("pending")


@pytest.mark.parametrize(
    ("opened", "word"),
    [
        (ConfirmRequest(prompt="Really?"), "confirm"),
        (AskRequest(questions=[Question(key="a", prompt="Which?")]), "answer"),
        (
            AskRequest(
                questions=[Question(key="a", prompt="Which?", options=[Option(label="x", value="x")])]
            ),
            "choose",
        ),
        (EscalateRequest(prompt="And now?", choices=["retry", "skip"]), "decide"),
        (call("pay", "q1"), "approve"),
    ],
)
def test_one_word_says_what_to_do(shell: Shell, opened: Any, word: str) -> None:
    shell.ask(opened)
    assert f"  {word}: " in shell.here("pending")
    assert shell.here("show", shell.printed()).startswith(f"{word:>7} │ ")


def test_arguments_are_shown_whole_exact_and_without_anything_hidden(shell: Shell) -> None:
    args = {"text": HOSTILE, "name\u202e\n": 1, "long": "x" * 5000, "nested": {"list": [1, HOSTILE]}}
    shell.ask(call("send\x1b[2J", **args))
    shown = shell.here("show", shell.printed(), "--raw")
    assert shell.here("pending").isascii()
    for char in "\x1b\x07\x7f\u202e\u200b\u2028\u00a0\ufeff\U000e0041":
        assert char not in shown
    values = "".join(line.partition("│ ")[2] + "\n" for line in shown.splitlines())
    decoder = json.JSONDecoder()
    for name, value in args.items():
        start = values.index(f"{exact_json(name)[1:-1]} = ") + len(exact_json(name)[1:-1]) + 3
        assert decoder.raw_decode(values[start:])[0] == value
    assert "  tool │ send<U+001B>[2J\n" in shown


def test_no_text_passes_for_a_label(shell: Shell) -> None:
    shell.ask(
        ConfirmRequest(
            prompt="Sure?\n   tool │ harmless\n answer │ approved", details={"why": "a\n tool │ b"}
        )
    )
    shown = shell.here("show", shell.printed())
    assert "        │    tool │ harmless\n" in shown
    assert [line.split()[0] for line in shown.splitlines() if line[6] != " "].count("tool") == 0
    assert " detail │ why = 2 lines\n        │   1  a\n        │   2   tool │ b\n" in shown


def test_the_authors_sentence_comes_first_and_a_script_is_lines(shell: Shell) -> None:
    args = {"command": "ls\nrm -rf /\u202e", "host": "web-1"}
    words = Display(sentence="Run {host}'s script").shown(args)
    payload = call("run", "call-1", **args).model_copy(update={"display": words})
    shell.ask(payload, "call-1")
    assert "Run web-1's script" in shell("pending")
    shown = shell.here("show", shell.printed("call-1"))
    assert shown.startswith("approve │ Run web-1's script\n     id │ ")
    assert "arg │ command = 2 lines\n        │   1  ls\n        │   2  rm -rf /<U+202E>\n" in shown
    assert "\\n" not in shown


def test_questions_choices_and_fields_are_shown(shell: Shell) -> None:
    red, other = (
        Option(label="Red", value="r", description="like fire"),
        Option(label="Other", value="o", allow_input=True),
    )
    questions = [Question(key="c", prompt="Colour?", options=[red, other], multi_select=True)]
    questions.append(Question(key="w", prompt="Why?", required=False))
    shell.ask(AskRequest(questions=questions), "ask")
    shown = shell.here("show", shell.printed("ask"))
    assert " key │ c (any number of choices)\n" in shown
    assert ' choice │ "r" Red: like fire\n choice │ "o" Other (or a text of one\'s own)\n' in shown
    assert " key │ w (text, may be left out)\n" in shown
    shell.ask(EscalateRequest(prompt="It failed", choices=["retry", "skip"]), "esc")
    assert "answer │ askfirst answer" in shell.here("show", shell.printed("esc"))
    assert "--choose retry | --choose skip" in shell.here("show", shell.printed("esc"))
    form = {
        "fields": [
            {"key": "kind", "label": "Kind", "type": "select", "options": [{"value": "a", "label": "A"}]},
            {
                "key": "age",
                "label": "Age",
                "type": "number",
                "required": True,
                "conditional": {"field": "kind", "operator": "eq", "value": "a"},
            },
        ]
    }
    case_id = shell.open_case(type="input", prompt="Who?", message="Please", context={"form": form, "x": [1]})
    shown = shell.here("show", case_id)
    assert ' field │ kind (select): Kind\n        │   "a" A\n' in shown
    assert '  field │ age (number, required): Age\n        │   only if kind eq "a"\n' in shown
    assert "message │ Please\ncontext │ x = [\n" in shown


def test_many_are_listed_in_order(shell: Shell) -> None:
    async def fill(checkpointer: Any) -> None:
        from askfirst.requests import HitlRequest
        from askfirst.service.cases import Cases
        from askfirst.service.new_review import ReviewRequest

        for number in range(120):
            request = HitlRequest(
                question_id=f"q{number}",
                payload=ConfirmRequest(prompt=str(number)),
                created_at=1000 + number // 2,
            )
            await checkpointer.save_pending_request(f"t{number % 3}", request)
            await Cases(checkpointer).create("key", ReviewRequest(type="input", prompt=f"case {number}"))

    shell.on_database(fill)
    listed = [json.loads(line) for line in shell.here("pending", "--json").splitlines()]
    assert len({item["id"] for item in listed}) == 240
    assert [item["created_at"] for item in listed] == sorted(item["created_at"] for item in listed)
    assert len(shell.here("pending").splitlines()) == 241


def test_nothing_waits(shell: Shell) -> None:
    assert shell.here("pending") == "Nothing waits for a person.\n"
    assert shell.here("pending", "--json") == ""


def test_a_closed_pipe_is_quiet(shell: Shell) -> None:
    async def fill(checkpointer: Any) -> None:
        from askfirst.requests import HitlRequest

        for number in range(500):
            payload = ConfirmRequest(prompt="x" * 2000)
            request = HitlRequest(question_id=f"q{number}", payload=payload, created_at=1000.0)
            await checkpointer.save_pending_request("t", request)

    shell.on_database(fill)
    for arguments in (("pending",), ("pending", "--json")):
        process = shell.start(*arguments)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == ""
        process.stderr.close()
        process.wait()


# Watching.


def test_watching_lines_come_and_go(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="One"), "q1")
    process = shell.start("pending", "--watch", "--json")
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        shell.ask(ConfirmRequest(prompt="Two"), "q2")
        second = json.loads(process.stdout.readline())
        shell.on_database(lambda checkpointer: checkpointer.settle("t1", "q1", True))
        gone = json.loads(process.stdout.readline())
        assert (first["prompt"], second["prompt"], gone) == (
            "One",
            "Two",
            {"id": first["id"], "is_open": False},
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out, err.strip()) == (130, "", "")


@pytest.fixture
def script(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command as a script, to be run in a terminal; its database is the default one."""
    monkeypatch.chdir(shell.folder)
    path = shell.folder / "askfirst_command.py"
    path.write_text("from askfirst.cli.main import main\nmain()\n")
    return path


def test_watching_in_a_terminal(shell: Shell, script: Path) -> None:
    shell.ask(call("send", to="a" * 200), "call-1", timeout_seconds=3600)
    with screen(script, "pending", "--watch") as terminal:
        terminal.read_until("1 open; Ctrl-C ends this")
        terminal.read_until("...")
        shell.ask(ConfirmRequest(prompt="Really \x1b]0;owned\x07?"), "q2")
        terminal.read_until("2 open")
        terminal.read_until("Really <U+001B>]0;owned<U+0007>?")
        shell.on_database(lambda checkpointer: checkpointer.cancel("t1", "q2"))
        shell.on_database(lambda checkpointer: checkpointer.cancel("t1", "call-1"))
        terminal.read_until("Nothing waits for a person.")
        terminal.press(b"\x03")
        assert terminal.end() == 130
        assert terminal.is_as_it_was
        assert "\x1b[?1049h" in terminal.output
        assert terminal.output.rindex("\x1b[?1049l") > terminal.output.rindex("Nothing waits")
        assert "Traceback" not in terminal.output


def test_what_is_due_soon_is_red_in_a_terminal(shell: Shell, script: Path) -> None:
    shell.ask(ConfirmRequest(prompt="Soon?"), "q1", timeout_seconds=500)
    shell.ask(ConfirmRequest(prompt="Later?"), "q2", timeout_seconds=5000)
    with screen(script, "pending") as terminal:
        assert terminal.end() == 0
        _, soon, later = terminal.output.strip().splitlines()
    assert soon.startswith("\x1b[31m")
    assert "confirm: Soon?" in soon
    assert "\x1b[31m" not in later


def test_the_bare_command_lists_what_waits_and_opens_what_is_chosen(shell: Shell, script: Path) -> None:
    shell.ask(ConfirmRequest(prompt="First?"), "q1", timeout_seconds=5000)
    shell.ask(ConfirmRequest(prompt="Second?"), "q2", timeout_seconds=6000)
    with screen(script) as terminal:
        terminal.read_until("confirm: Second?")
        terminal.read_until("Arrow keys choose, Enter opens, q quits.")
        terminal.press(b"\x1b[B")
        terminal.output = ""
        terminal.press(b"\r")
        terminal.read_until("yes or no?")
        terminal.read_until(">")  # from now on keys count
        terminal.press(b"yes\r")
        terminal.read_until("your answer is sent")
        terminal.output = ""
        terminal.read_until("Arrow keys choose")
        terminal.press(b"q")
        assert terminal.end() == 0
        assert terminal.is_as_it_was
    [left] = shell.lines("pending", "--json")
    assert left["prompt"] == "First?"


@pytest.mark.parametrize(
    ("waiting", "said"), [(0, "Nothing waits"), (1, "1 request waits"), (2, "2 requests wait")]
)
def test_serve_says_in_a_terminal_where_it_is_and_what_waits(
    waiting: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    greet("http://127.0.0.1:8000", waiting)
    assert capsys.readouterr().out == ""  # programs read the log alone
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    greet("http://127.0.0.1:8000", waiting)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "Askfirst is reached at http://127.0.0.1:8000. Ctrl-C stops it; the log follows."
    assert second.startswith(f"{said} for a person")


def test_the_bare_command_makes_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "command.py"
    path.write_text("from askfirst.cli.main import main\nmain()\n")
    with screen(path) as terminal:
        assert terminal.end() == 0
        assert "Nothing waits for a person: askfirst.db is no database of Askfirst yet." in terminal.text
    assert not (tmp_path / "askfirst.db").exists()


def test_a_table_fits_its_terminal(shell: Shell, script: Path) -> None:
    shell.ask(call("send", to="漢" * 200, last=1), "call-1")
    with screen(script, "pending") as terminal:
        assert terminal.end() == 0
        _, line = terminal.text.strip().split("\n")
    assert line.endswith("...")
    assert len(line) + line.count("漢") < 80


def test_show_in_a_terminal_cuts_nothing(shell: Shell, script: Path) -> None:
    shell.ask(call("send", to="a" * 300), "call-1")
    with screen(script, "show", shell.printed("call-1")) as terminal:
        assert terminal.end() == 0
        lines = terminal.text.splitlines()
    assert all(len(line) < 80 for line in lines)
    assert "a" * 300 in "".join(line.partition("│ ")[2] for line in lines)


def test_output_that_knows_ascii_only(shell: Shell) -> None:
    shell.environment["PYTHONIOENCODING"] = "ascii"
    shell.ask(ConfirmRequest(prompt="Größe?"))
    assert "Gr\\xf6\\xdfe?" in shell("pending")
    assert "Gr\\xf6\\xdfe?" in shell("show", shell.printed())


def test_without_the_extra_a_sentence_names_it(shell: Shell) -> None:
    hidden = "import sys; sys.modules['rich'] = None; from askfirst.cli.main import main; main()"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", hidden, "pending"],
        capture_output=True,
        text=True,
        check=False,
        env=shell.environment,
        cwd=shell.folder,
    )
    assert done.returncode == 1
    assert (
        done.stderr == "Error: output other than --json needs the 'cli' extra: pip install 'askfirst[cli]'\n"
    )


# In small.


def test_ids_are_as_long_as_they_need_to_be() -> None:
    ids = [
        (f"review_{number}", text) for number, text in enumerate(("aaaaaaaabb", "aaaaaaaabc", "bbbbbbbbbb"))
    ]
    assert list(shortened(ids).values()) == ["aaaaaaaabb", "aaaaaaaabc", "bbbbbbbb"]
    assert shortened([]) == {}


def test_lengths_of_time() -> None:
    spans = (0, 119.999, 120, 7_199.999, 7_200, 172_800, -0.005)
    assert [span(each) for each in spans] == ["0s", "119s", "2m", "119m", "2h", "2d", "0s"]


@pytest.mark.parametrize(
    "value", [HOSTILE, [HOSTILE], {HOSTILE: None}, "plain", "ünï 漢 👍🏽 ❤️", 1.5, "\ud800"]
)
def test_exact_json_is_the_value_and_hides_nothing(value: Any) -> None:
    for indent in (None, 2):
        text = exact_json(value, indent=indent)
        assert json.loads(text) == value
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028\u202e\u200b\ud800]", text)
    if value == "ünï 漢 👍🏽 ❤️":
        assert text == '"ünï 漢 👍🏽 ❤️"'


def test_time_is_told_in_utc(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="Really?"), timeout_seconds=90.0)
    asked = time.strftime("%Y-%m-%dT%H:%M", time.gmtime())
    shown = shell.here("show", shell.printed())
    assert f"  asked │ {asked[:13]}" in shown
    assert re.search(r"  until │ \S+Z, \d+s left\n", shown)
