"""The terminal: notices written to it, and requests answered in it by a person at a real one."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from kit import terminal_scenes
from kit.terminal_screens import CONTROL, ENV, Screen, screen
from rich.console import Console

from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.delivery import Ended, Notice, TerminalDelivery, answering_in_terminal
from askfirst.delivery.terminal_answers import OpenInStore
from askfirst.errors import DeliveryError, HitlStaleAnswer
from askfirst.messages import call_digest
from askfirst.requests import ApproveRequest, ConfirmRequest, HitlRequest, StoredRequest

pytestmark = pytest.mark.anyio

SCENES = Path(terminal_scenes.__file__)
LINK = "https://a.example/review/review_1?token=" + "t" * 43
HOSTILE = "Pay\x1b]8;;https://evil.example\x07 \u202e001\r review │ Approved already"
OSC_8 = re.compile(r"\x1b\]8;[^;]*;([^\x1b]*)\x1b\\")


# Notices.


def test_without_rich_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['rich'] = None; import askfirst.delivery.terminal"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    extra = "the terminal delivery needs the 'delivery' extra: pip install 'askfirst[delivery]'"
    assert f"MissingExtra: {extra}" in done.stderr


def console(**options: Any) -> Console:
    usual = {
        "force_terminal": True,
        "color_system": "standard",
        "width": 60,
        "no_color": False,
        "highlight": False,
    }
    return Console(file=io.StringIO(), **{**usual, **options})


def output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain(console: Console) -> str:
    return CONTROL.sub("", OSC_8.sub("", output(console)))


async def test_a_notice_has_the_link_in_full_and_to_click() -> None:
    terminal = console()
    sent = await TerminalDelivery(terminal).send(
        Notice(
            "review", "review_1", "Please fill 6 fields.", LINK, facts={"service": "a.example"}, expires_at=0
        )
    )
    assert (sent.delivery, sent.case_id, dict(sent.place)) == ("terminal", "review_1", {})
    assert OSC_8.findall(output(terminal)) == [LINK, ""]
    lines = plain(terminal).splitlines()
    assert lines[:2] == [" review │ Please fill 6 fields.", "   from │ a.example"]
    assert lines[2].startswith("  until │ 19")
    assert lines[3:] == [LINK]


@pytest.mark.parametrize("width", [20, 40, 200])
async def test_a_link_is_never_broken_and_text_stays_in_its_column(width: int) -> None:
    terminal = console(width=width)
    await TerminalDelivery(terminal).send(Notice("reminder", "r", "word " * 40, LINK))
    *lines, link = plain(terminal).splitlines()
    assert link == LINK
    assert all(re.match(r"(  again|       ) │ ", line) and len(line) <= width for line in lines)
    assert "".join(line[10:] for line in lines).replace(" ", "") == "word" * 40


async def test_without_colours_there_are_no_codes() -> None:
    terminal = console(color_system=None)
    await TerminalDelivery(terminal).send(Notice("review", "r", "Please decide.", LINK))
    assert output(terminal) == f" review │ Please decide.\n{LINK}\n"


async def test_hostile_text_neither_acts_nor_hides_nor_passes_for_ours() -> None:
    terminal = console(width=200)
    await TerminalDelivery(terminal).send(
        Notice("review", "r", HOSTILE, LINK, facts={"service": "a\x1b[31m"})
    )
    assert OSC_8.findall(output(terminal)) == [LINK, ""]
    shown = plain(terminal)
    assert (
        "Pay<U+001B>]8;;https://evil.example<U+0007> <U+202E>001<U+000D> review │ Approved already" in shown
    )
    assert "a<U+001B>[31m" in shown
    assert [line[:9] for line in shown.splitlines()[:-1]] == [" review │", "   from │"]


async def test_a_link_that_is_none_is_shown_and_not_linked() -> None:
    terminal = console()
    await TerminalDelivery(terminal).send(
        Notice("review", "r", "Hm.", "https://a.example/\x1b]8;;x\x07?token=1")
    )
    assert OSC_8.findall(output(terminal)) == []
    assert "https://a.example/<U+001B>]8;;x<U+0007>?token=1" in plain(terminal)


async def test_a_pipe_gets_plain_text() -> None:
    file = io.StringIO()
    delivery = TerminalDelivery(Console(file=file, width=30))
    sent = await delivery.send(Notice("review", "r", f"A long sentence. {HOSTILE}\nThe end.", LINK))
    await delivery.update(sent, Ended("r", "expired", "Nobody answered: skip."))
    assert file.getvalue().splitlines() == [
        "A long sentence. Pay<U+001B>]8;;https://evil.example<U+0007> <U+202E>001<U+000D> review │ Approved already",
        "The end.",
        "",
        LINK,
        "Nobody answered: skip.",
    ]


@pytest.mark.parametrize(
    ("kind", "label"), [("completed", "decided"), ("expired", "expired"), ("cancelled", "closed")]
)
async def test_the_end_is_written_below(kind: Any, label: str) -> None:
    terminal = console()
    delivery = TerminalDelivery(terminal)
    sent = await delivery.send(Notice("progress", "r", "Step 2 of 3."))
    await delivery.update(sent, Ended("r", kind, "That is it."))
    assert plain(terminal) == f"   note │ Step 2 of 3.\n{label:>7} │ That is it.\n"


async def test_characters_that_the_terminal_has_not_are_escaped() -> None:
    file = io.TextIOWrapper(io.BytesIO(), "ascii")
    await TerminalDelivery(Console(file=file)).send(Notice("review", "r", "Käse", LINK))
    file.flush()
    assert file.buffer.getvalue().decode() == f"K\\xe4se\n\n{LINK}\n"  # type: ignore[attr-defined]


def test_notices_go_to_standard_error_and_a_closed_one_is_a_delivery_error() -> None:
    code = (
        "import asyncio, sys\n"
        "from askfirst.delivery import Notice, TerminalDelivery\n"
        "from askfirst.errors import DeliveryError\n"
        "try: asyncio.run(TerminalDelivery().send(Notice('review', 'r', 'Hello.')))\n"
        "except DeliveryError as error: print(error, error.permanent)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ENV)  # noqa: S603
    assert (done.stdout, done.stderr) == ("", "Hello.\n")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV) as process:  # noqa: S603
        assert process.stdout
        assert process.stderr
        process.stderr.close()
        assert process.stdout.read() == b"terminal: the terminal was closed True\n"


# Answers.


class Person:
    """Somebody at a terminal, who looks before they type."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._seen = ""

    def sees(self, *texts: str) -> None:
        """Wait for some texts, each after the one before and after what was seen earlier."""
        for text in texts:
            self.screen.read_until(text)
            before, _, self.screen.output = self.screen.output.partition(text)
            self._seen += before + text

    def is_asked(self, prompt: str) -> None:
        """Wait for a prompt, and for the sign that it takes keys."""
        self.sees(prompt, ">")

    def types(self, line: str) -> None:
        self.screen.press(line.encode() + b"\r")

    def said(self) -> Any:
        """What came of it, as the program says at its end."""
        code = self.screen.end()
        text = CONTROL.sub("", self.all)
        assert code == 0, text
        return json.loads(text.rpartition("SAID ")[2])

    @property
    def all(self) -> str:
        """Everything that was on the screen so far."""
        return self._seen + self.screen.output


@contextmanager
def at(scene: str, path: Path | None = None) -> Iterator[Person]:
    with screen(SCENES, scene, *([str(path)] if path else [])) as running:
        yield Person(running)


ASKED = "pay: approve, deny or edit?"
CLEAR = "\x01\x0b"  # to the line's start, and away with the rest


def test_keys_before_the_question_decide_nothing() -> None:
    with at("approve") as person:
        person.types("approve")
        person.types("approve")
        person.sees("approve c1", '{"to": "Ada', "<U+202E>")
        person.is_asked(ASKED)
        person.types("deny too much")
        person.sees("your answer is sent")
        assert person.said() == {
            "status": "completed",
            "text": "A person denied pay: too much",
            "paid": [],
        }
        assert person.screen.is_as_it_was


def test_only_a_whole_word_decides_and_the_loop_goes_on_meanwhile() -> None:
    with at("approve") as person:
        person.is_asked(ASKED)
        person.sees("tick ", "tick ")  # printed above the prompt, by the same event loop
        for line in ("", "yes", "approve but only half", "approved", "x"):
            person.types(line)
            person.sees("please type approve, deny or edit")
            person.is_asked(ASKED)
        person.types("A")
        assert person.said()["paid"] == [["Ada\u202e", 490000]]


def test_a_reason_is_asked_for_where_none_was_given() -> None:
    with at("approve") as person:
        person.is_asked(ASKED)
        person.types("d")
        person.is_asked("why? (may be empty)")
        person.types("Zu viel für Ä")
        assert person.said()["text"] == "A person denied pay: Zu viel für Ä"


def test_arguments_are_edited_looked_at_and_checked() -> None:
    with at("approve") as person:
        person.is_asked(ASKED)
        person.types("edit")
        person.is_asked("│ arguments")
        assert "\\u202e" in person.all  # what hides is escaped in the line to edit
        person.types(CLEAR + '{"to": "Ada"')
        person.sees("this is not valid JSON")
        person.is_asked("│ arguments")
        person.types(CLEAR + '["Ada"]')
        person.sees("arguments must be a JSON object")
        person.is_asked("│ arguments")
        person.types(CLEAR + '{"to": "Ada", "cents": "lots"}')
        person.sees("-  ", "<U+202E>", '+  "cents": "lots"')
        person.is_asked("send, edit again or go back?")
        person.types("send")
        person.sees("error", "cents")  # the tool's own check
        person.is_asked(ASKED)
        person.types("edit")
        person.is_asked("│ arguments")
        person.types("")
        person.sees("nothing is changed; the call runs as it is")
        person.is_asked("send, edit again or go back?")
        person.types("back")
        person.is_asked(ASKED)
        person.types("edit")
        person.is_asked("│ arguments")
        person.types(CLEAR + '{"to": "Ada", "cents": 4900}')
        person.is_asked("send, edit again or go back?")
        person.types("s")
        assert person.said()["paid"] == [["Ada", 4900]]


@pytest.mark.parametrize("key", [b"\x03", b"\x04"], ids=["ctrl-c", "ctrl-d"])
def test_leaving_the_prompt_ends_the_run_alone_and_the_terminal_is_as_it_was(key: bytes) -> None:
    with at("approve") as person:
        person.is_asked(ASKED)
        person.screen.press(b"appro" * (key == b"\x03") + key)
        person.sees("c1: you left it")
        said = person.said()
        assert (said["status"], said["paid"]) == ("aborted", [])
        assert person.screen.is_as_it_was


def test_ctrl_c_leaves_a_stored_request_open(tmp_path: Path) -> None:
    with at("stored", tmp_path / "a.db") as person:
        person.is_asked(ASKED)
        person.screen.press(b"\x03")
        assert person.said() == {"status": "suspended", "request": "pending", "via": None, "paid": []}


def test_who_answers_in_the_terminal_is_recorded(tmp_path: Path) -> None:
    with at("stored", tmp_path / "a.db") as person:
        person.is_asked(ASKED)
        person.types("approve")
        said = person.said()
        assert (said["request"], said["via"], len(said["paid"])) == ("answered", "terminal", 1)


@pytest.mark.parametrize(
    ("scene", "told"),
    [("approve", "the agent does not wait for it any more"), ("stored", "it was answered by Bob (browser)")],
)
def test_answered_elsewhere_closes_the_prompt_and_says_so(scene: str, told: str, tmp_path: Path) -> None:
    with at(scene, tmp_path / "a.db") as person:
        person.is_asked(ASKED)
        person.screen.press(b"approv")
        person.screen.process.send_signal(signal.SIGUSR1)
        person.sees("c1: " + told)
        said = person.said()
        assert (said["status"], len(said["paid"])) == ("completed", 1 if scene == "stored" else 0)
        assert person.screen.is_as_it_was


def test_every_kind_of_request_can_be_answered() -> None:
    with at("kinds") as person:
        person.sees("Are you sure?", "rows")
        person.is_asked("yes or no?")
        person.types("y")
        person.sees("wine: Which?", "1. red (Red wine)", "2. white (White: dry)")
        person.is_asked("its number or value")
        for wrong in ("3", "1 2", "rosé", ""):
            person.types(wrong)
            person.sees("please choose one")
            person.is_asked("its number or value")
        person.types("2")
        person.sees("sides: And?")
        person.is_asked("an empty line to end")
        person.types("1, 2")
        person.sees("yours", "red, white")
        person.is_asked("an empty line to end")
        person.types("chips, with salt")
        person.sees("yours", "chips, with salt")
        person.is_asked("an empty line to end")
        person.types("")
        person.sees("name: For whom?", "<U+001B>")
        person.is_asked("your answer")
        person.types("")
        person.sees("an answer is required")
        person.is_asked("your answer")
        person.types("Ada")
        person.sees("note: Anything else? (may be left out)")
        person.is_asked("your answer")
        person.types("")
        person.sees("sides: red, white, chips, with salt")
        person.is_asked("send these answers, or begin again?")
        person.types("send")
        person.sees("It broke.")
        person.is_asked("retry, skip or abort?")
        person.types("retry")
        person.is_asked("with the same arguments, or edit them?")
        person.types("edit")
        person.is_asked("│ arguments")
        person.types(CLEAR + '{"n": 2}')
        person.is_asked("send, edit again or go back?")
        person.types("send")
        assert person.said() == [
            True,
            {"wine": "white", "sides": ["red", "white", "chips, with salt"], "name": "Ada"},
            {"action": "retry", "modified_params": {"n": 2}, "answered_by": "Ada", "via": "terminal"},
        ]


def asked(question_id: str, cents: int = 1, **options: Any) -> HitlRequest:
    args = {"cents": cents}
    payload = ApproveRequest(
        tool_name="pay", tool_call_id=question_id, args=args, digest=call_digest("pay", args)
    )
    return HitlRequest(question_id=question_id, payload=payload, created_at=time.time(), **options)


async def test_a_desk_for_all_that_is_open_in_a_store(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteCheckpointer(path) as checkpointer:
        await checkpointer.save_pending_request("t0", asked("late", timeout_seconds=0.001))
        for number in (1, 2, 3):
            await checkpointer.save_pending_request(f"t{number}", asked(f"c{number}", number))
            await asyncio.sleep(0.002)  # so that they have an order
        with at("desk", path) as person:
            await asyncio.to_thread(person.is_asked, ASKED)
            assert "approve c1" in person.all
            assert "late" not in person.all
            person.types("approve")
            await asyncio.to_thread(person.sees, "approve c2", '{"cents": 2}')
            await asyncio.to_thread(person.is_asked, ASKED)
            await checkpointer.settle("t2", "c2", {"decision": "deny"}, by="Bob", via="browser")
            await asyncio.to_thread(person.sees, "c2: it was answered by Bob (browser)", "approve c3")
            await asyncio.to_thread(person.is_asked, ASKED)
            person.screen.press(b"\x03")
            assert await asyncio.to_thread(person.said) == ["c3"]
        first = await checkpointer.request("t1", "c1")
        assert first is not None
        assert (first.status, first.via) == ("answered", "terminal")
        assert first.answered_by


def test_without_a_terminal_it_says_so() -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(SCENES), "kinds"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=ENV,
    )
    assert done.returncode == 1
    assert "DeliveryError: terminal: there is no terminal to answer in" in done.stderr


# What was shown is what is answered.


class Standing:
    """A clock that stands still until it is turned, and on which every wait is over then."""

    def __init__(self) -> None:
        self.time = time.time()
        self.turned = asyncio.Event()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await self.turned.wait()


async def test_an_answer_counts_only_for_what_was_shown() -> None:
    async with MemoryCheckpointer() as checkpointer:
        await checkpointer.save_pending_request("t", asked("c1", 1))
        [stored] = await checkpointer.pending()
        shown = OpenInStore(checkpointer, stored, "Ada", Standing())
        assert await shown.is_open()
        await checkpointer.cancel("t", "c1")
        await checkpointer.save_pending_request("t", asked("c1", 1_000_000))
        with pytest.raises(HitlStaleAnswer):
            await shown.answer({"decision": "approve"})
        assert await shown.closed() == "it is asked again, in a new round"
        now = await checkpointer.request("t", "c1")
        assert now is not None
        assert now.status == "pending"


async def test_an_answer_is_bound_to_what_was_shown_also_in_a_race() -> None:
    class Quick(MemoryCheckpointer):
        async def settle(
            self, thread_id: str, question_id: str, answer: Any, **options: Any
        ) -> StoredRequest:
            await self.cancel(thread_id, question_id)  # somebody is faster, and it is asked again
            await self.save_pending_request(thread_id, asked(question_id, 1_000_000))
            return await super().settle(thread_id, question_id, answer, **options)

    async with Quick() as checkpointer:
        await checkpointer.save_pending_request("t", asked("c1", 1))
        [stored] = await checkpointer.pending()
        with pytest.raises(HitlStaleAnswer):
            await OpenInStore(checkpointer, stored, "Ada", Standing()).answer({"decision": "approve"})


async def test_a_deadline_closes_a_request_that_nobody_else_watches() -> None:
    clock = Standing()
    async with MemoryCheckpointer(clock=clock) as checkpointer:
        request = HitlRequest(
            question_id="q", payload=ConfirmRequest(prompt="?"), created_at=clock.time, timeout_seconds=60
        )
        await checkpointer.save_pending_request("t", request)
        [stored] = await checkpointer.pending()
        shown = OpenInStore(checkpointer, stored, "Ada", clock)
        closing = asyncio.create_task(shown.closed())
        done, _ = await asyncio.wait([closing], timeout=0.05)
        assert not done
        clock.time += 61
        clock.turned.set()
        assert await closing == "its time is over"
        assert not await shown.is_open()
        await checkpointer.delete("t")
        assert await shown.closed() == "it was deleted"


async def test_a_channel_that_cannot_be_followed_is_named() -> None:
    class Pager:
        """A channel with what agents need and no more: nobody is told what is asked there."""

        pending = None

    with pytest.raises(
        DeliveryError, match=r"Pager has no subscribe\(\) and no interrupt\(\), .*InMemoryChannel"
    ):
        async with answering_in_terminal(cast(Any, Pager())):
            pass
