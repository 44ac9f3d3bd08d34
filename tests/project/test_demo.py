"""The demo: in a terminal of its own, without one, and with nobody there."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx2
import pytest
from kit.paths import ROOT
from kit.patience import PATIENCE
from kit.terminal_screens import ENV, screen
from kit.warm_python import warm_python

DEMO = ROOT / "examples" / "demo"
LINK = re.compile(r"http://127\.0\.0\.1:\d+/review/\S+")
HINT = "press a to approve"


def run(*args: str, cold: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [*([sys.executable] if cold else warm_python()), "-W", "error", str(DEMO), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=ENV,
        check=False,
    )


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The demo as a module; its parts lie beside it."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(DEMO))
    yield importlib.import_module("play")
    for name in set(sys.modules) - before:
        if str(DEMO) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def played(demo: ModuleType, *, auto: bool = True) -> tuple[int, list[tuple[str, int]]]:
    """The exit code, and what was paid."""
    desk = importlib.import_module("desk")
    at = desk.Desk(0)
    play = demo.Play(desk.script(), at, auto=auto)
    return asyncio.run(play.run(desk.PROMPT, 0, None)), at.payments


def answer(link: str, action: str, data: dict[str, str]) -> None:
    at, _, token = link.partition("?")
    body = {"action": action, "data": data}
    sent = httpx2.post(f"{at}/respond?{token}", json=body, trust_env=False, timeout=PATIENCE)
    assert sent.status_code == 200, sent.text


# Nobody is there.


def test_auto_shows_each_step_and_succeeds() -> None:
    done = run("--auto", "--fast", cold=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    steps = [
        "        │ find_orders 100% June: 2 found",
        "  error │ quote_refund failed: ValueError: A-1042 has no line 'kettle with lid'",
        "   asks │ approve c4 within 900 s",
        "http://127.0.0.1:",
        "   auto │ opens the page: GET /review/",
        "   auto │ reads there: pay_refund, order_id, A-1042, cents, 4900",
        "   auto │ presses 'Pay 49.00 EUR': POST /review/",
        "   auto │ opens the page: GET /review/",
        "   auto │ success: asked, answered on the page, paid once",
    ]
    found = [next((n for n, line in enumerate(lines) if line.startswith(step)), None) for step in steps[:7]]
    assert None not in found
    assert found == sorted(found, key=lambda n: n or 0)
    assert lines[-1] == steps[-1]
    assert " result │ pay_refund: Paid 49.00 EUR for A-1042" in lines
    approved = "You approved: Pay back 49.00 EUR for order A-1042"
    ran = "Paid back 49.00 EUR for order A-1042"  # if the demo was slower than the page's undo time
    assert any(f"gives 200, '{heading}'" in line for line in lines for heading in (approved, ran))


def test_auto_fails_if_the_page_does_not_show_what_will_run(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_shown", lambda case: ["pay_refund", "490000"])
    assert played(demo) == (1, [])
    assert "   auto │ failure: the page does not show '490000'\n" in capsys.readouterr().out


def test_auto_fails_if_the_answer_is_not_taken(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.import_module("visitor"), "_origin", lambda link: "https://evil.example")
    assert played(demo) == (1, [])
    assert "   auto │ failure: the answer was not taken: " in capsys.readouterr().out


def test_auto_fails_if_something_else_was_paid(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "WANTED", [])
    assert played(demo)[0] == 1
    assert "failure: the run is completed, and what was paid is [Payment(" in capsys.readouterr().out


def test_auto_gives_up_in_the_end(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def never(link: str, expected: list[str], say: object) -> None:
        asyncio.get_running_loop().call_soon(give_up)
        await asyncio.Event().wait()

    def give_up() -> None:
        plays[0]._give_up(agents[0])

    plays: list[object] = []
    agents: list[object] = []
    made = demo.Agent

    def agent(**options: object) -> object:
        agents.append(made(**options))
        return agents[-1]

    class Play(demo.Play):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)
            plays.append(self)

    monkeypatch.setattr(demo, "approve", never)
    monkeypatch.setattr(demo, "Agent", agent)
    monkeypatch.setattr(demo, "Play", Play)
    assert played(demo) == (1, [])
    assert "failure: it took more than 120 seconds" in capsys.readouterr().out


# Somebody is there, with a browser.


@pytest.mark.parametrize(
    ("action", "data", "said"),
    [
        ("approve", {}, "Done, after a person said yes: Paid 49.00 EUR for A-1042"),
        ("reject", {"feedback": "Ask Bo first."}, "I have paid nothing."),
    ],
)
def test_a_person_answers_on_the_page(action: str, data: dict[str, str], said: str) -> None:
    process = subprocess.Popen(  # noqa: S603
        [*warm_python(), "-W", "error", str(DEMO), "--fast"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=ENV,
    )
    assert process.stdout is not None
    link = next(found[0] for line in process.stdout if (found := LINK.search(line)))
    answer(link, action, data)
    rest, complaints = process.communicate()
    assert (process.returncode, complaints) == (0, "")
    assert said in rest
    assert "    run │ completed\n        │ \n        │ What you just saw: " in rest


def test_the_page_is_faster_than_the_key() -> None:
    with screen(DEMO, "--fast") as seen:
        seen.read_until(HINT)
        found = LINK.search(seen.text)
        assert found is not None
        answer(found[0], "approve", {})
        assert seen.end() == 0
    assert "Done, after a person said yes: Paid 49.00 EUR for A-1042" in seen.text


# Somebody is there, with a keyboard.


@pytest.mark.parametrize(
    ("key", "said"), [(b"a", "Done, after a person said yes: Paid 49.00 EUR"), (b"d", "I have paid nothing.")]
)
def test_a_person_answers_by_a_key(key: bytes, said: str) -> None:
    with screen(DEMO, "--fast") as seen:
        seen.read_until(HINT)
        for no_answer in (b"\x1b[A", b"x"):  # an arrow is no A
            seen.press(no_answer)
            seen.read_until("decides nothing")
            seen.output = seen.output.replace("decides nothing", "")
        seen.press(key)
        assert seen.end() == 0
        assert seen.is_as_it_was
    assert "\x1b[1;31m  error" in seen.output
    assert said in seen.text.replace("\n        │ ", " ")
    assert "    run │ completed\n        │ \n        │ What you just saw: " in seen.text
    assert seen.output.rindex("\x1b[?25h") > seen.output.rindex("\x1b[?25l")


def test_keys_pressed_before_the_question_decide_nothing() -> None:
    with screen(DEMO) as seen:
        seen.read_until("thinks")
        seen.press(b"ddd\nd")
        seen.read_until(HINT)
        seen.press(b"a")
        assert seen.end() == 0
    assert "Done, after a person said yes: Paid 49.00 EUR" in seen.text


def test_the_link_is_there_whole_and_no_code_for_an_address_that_no_phone_reaches() -> None:
    with screen(DEMO, "--fast") as seen:
        seen.read_until(HINT)
        seen.press(b"d")
        assert seen.end() == 0
    link = LINK.search(seen.text)
    assert link is not None
    assert len(link[0]) > 80
    assert "▀" not in seen.text


@pytest.mark.parametrize("moment", ["thinks", "━", HINT])
def test_ctrl_c_aborts_cleanly(moment: str) -> None:
    """While the model speaks, while tools run, and while a person is awaited."""
    with screen(DEMO) as seen:
        seen.read_until(moment)
        seen.press(b"\x03")
        assert seen.end() == 130
        assert seen.is_as_it_was
    assert seen.text.endswith("    run │ aborted: the run was aborted\n")
    assert "Traceback" not in seen.text
    assert "\x1b[?25l" not in seen.output.rpartition("\x1b[?25h")[2]


def test_hostile_text_is_inert_in_a_terminal() -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07 \u202edesrever a\u200bb [b]\n    run │ completed"
    with screen(DEMO, "--auto", "--fast", "--prompt", hostile) as seen:
        assert seen.end() == 0
    assert "\x1b[2J" not in seen.output
    assert "\x1b]" not in seen.output
    assert not {"\x07", "\u202e", "\u200b"} & set(seen.output)
    assert "    you │ <U+001B>[2J<U+001B>]0;owned<U+0007> <U+202E>desrever a<U+200B>b [b]\n" in seen.text
    assert "        │     run │ completed\n" in seen.text


# What can go wrong.


def test_a_closed_pipe_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(DEMO), "--auto", "--fast"],
        stdout=write,
        stderr=subprocess.PIPE,
        env=ENV,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_failed_run_is_a_failure(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    desk = importlib.import_module("desk")
    play = demo.Play(type(desk.script())([]), desk.Desk(0), auto=False)
    assert asyncio.run(play.run("Anyone there?", 0, None)) == 1
    assert "    run │ failed: the scripted model has 0 turns" in capsys.readouterr().out


def test_a_port_that_is_taken_is_told_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("--auto", "--fast", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_base_url_that_cannot_be_is_told_plainly() -> None:
    done = run("--auto", "--fast", "--base-url", "http://192.168.1.5:8000")
    assert done.returncode == 1
    assert done.stderr.startswith("base_url must be the address at which people reach the service")


# The model.


@pytest.mark.parametrize(
    ("given", "auto", "environ", "name"),
    [
        (None, False, {}, "scripted"),
        (None, False, {"ANTHROPIC_API_KEY": "k"}, "anthropic:claude-sonnet-5"),
        (None, False, {"OPENAI_API_KEY": "k"}, "openai:gpt-5"),
        (None, True, {"OPENAI_API_KEY": "k"}, "scripted"),
        ("scripted", False, {"OPENAI_API_KEY": "k"}, "scripted"),
        ("openai:gpt-5-mini", True, {}, "openai:gpt-5-mini"),
    ],
)
def test_which_model_it_is(
    demo: ModuleType, given: str | None, auto: bool, environ: dict[str, str], name: str
) -> None:
    assert start().model_name(given, auto, environ) == name


def start() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_start", DEMO / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("model", "why"), [("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"), ("nosuchmodel", "nosuchmodel")]
)
def test_a_model_that_cannot_be_used_is_told_plainly(model: str, why: str) -> None:
    done = run("--model", model)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"The model {model} cannot be used: ")
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_extra_is_told_plainly(
    demo: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "stamina", None)
    assert start().main(["--model", "anthropic:claude-sonnet-5"]) == 2
    assert "pip install 'askfirst[models]'" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "group"), [("", "demo"), ("k", "demo-models")])
def test_the_script_runs_the_demo(tmp_path: Path, key: str, group: str) -> None:
    """With an environment that is there already: what `scripts/setup.sh` does is tested elsewhere."""
    (tmp_path / "demo").write_text((ROOT / "scripts" / "demo").read_text())
    (tmp_path / "setup.sh").write_text(f'need() {{ [ "$1" = {group} ]; }}; set -e; cd "$ROOT"; PY=$PYTHON\n')
    done = subprocess.run(  # noqa: S603
        ["bash", str(tmp_path / "demo"), "--auto", "--fast"],  # noqa: S607
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**ENV, "ROOT": str(ROOT), "PYTHON": sys.executable, "OPENAI_API_KEY": key},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("   auto │ success: asked, answered on the page, paid once\n")
