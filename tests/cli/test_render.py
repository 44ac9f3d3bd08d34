"""The terminal view: what it shows, and what no text can do to it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from askfirst import Agent, BeforeToolCallResult, Middleware, ToolCallContext, ToolContext, ToolResult, tool
from askfirst.cli.render import RESULT_LIMIT, TerminalView
from askfirst.delivery.terminal import Column
from askfirst.events import (
    HitlAnswerEvent,
    MessageDeltaEvent,
    MessageEndedEvent,
    RunStartedEvent,
    ToolProgressEvent,
)
from askfirst.hitl import ConfirmToolCallMiddleware, HitlTimedOut, InMemoryChannel, ask_user_tool
from askfirst.hitl.testing import ScriptedChannel
from askfirst.messages import (
    AssistantMessage,
    ImagePart,
    RestartDelta,
    TextDelta,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
    UserMessage,
)
from askfirst.models import ModelRequest, ScriptedModel
from askfirst.visible_text import visible

pytestmark = pytest.mark.anyio

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LINE = re.compile(
    r" *(run|you|thinks|agent|kept|call|runs|asks|answer|waits|closed|result|error|more|retry|)(?<=^.{7}) │ "
)


def plain() -> Console:
    return Console(file=io.StringIO(), highlight=False, width=60)


def terminal(width: int = 60) -> Console:
    return Console(
        file=io.StringIO(), highlight=False, width=width, force_terminal=True, color_system="standard"
    )


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def watch(console: Console, turns: list[Any], *tools: Any, prompt: Any = "Go.", **options: Any) -> str:
    agent = Agent(model=ScriptedModel(turns), tools=tools, **options)
    agent.subscribe(TerminalView(console))
    await agent.prompt(prompt)
    return shown(console)


@tool(effect="none")
async def pay(to: str, cents: int = 100) -> str:
    """Pay someone."""
    if cents > 1000:
        raise ValueError("too much")
    return f"{cents} to {to}"


# What is shown.


async def test_a_whole_run() -> None:
    call = ToolCall("c1", "pay", {"to": "Ada", "cents": 5})
    last = AssistantMessage("Paid.", usage=Usage(input_tokens=1200, output_tokens=7, cache_read_tokens=1000))
    assert await watch(plain(), [[ThinkingPart("Hm."), "I will.", call], last], pay, id="desk") == (
        "    run │ desk starts\n"
        "    you │ Go.\n"
        " thinks │ Hm.\n"
        "  agent │ I will.\n"
        '   call │ pay {"to": "Ada", "cents": 5}\n'
        " result │ pay: 5 to Ada\n"
        "  agent │ Paid.\n"
        "    run │ completed (1,200 tokens in (1,000 from cache), 7 out)\n"
    )


async def test_arguments_that_differ_from_what_the_model_wrote_are_shown_too() -> None:
    seen = await watch(plain(), [ToolCall("c1", "pay", {"to": "Ada"}), "Done."], pay)
    assert '   call │ pay {"to": "Ada"}\n   runs │ pay {"to": "Ada", "cents": 100}\n' in seen


async def test_a_middleware_cannot_change_arguments_unseen() -> None:
    class ToBo(Middleware):
        async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult:
            return BeforeToolCallResult(edited_args={"to": "Bo", "cents": 5})

    call = ToolCall("c1", "pay", {"to": "Ada", "cents": 5})
    seen = await watch(plain(), [call, "Done."], pay, middleware=[ToBo()])
    assert '   runs │ pay {"to": "Bo", "cents": 5}\n' in seen


async def test_calls_that_never_run_are_shown() -> None:
    calls = [
        ToolCall("c1", "payy", {"to": "Ada"}),
        ToolCall("c2", "pay", {"cents": 5}),
        ToolCall("c3", "pay", {}, malformed='{"to": '),
    ]
    seen = await watch(plain(), [calls, "Sorry."], pay)
    assert '   call │ payy {"to": "Ada"}\n' in seen
    assert '   call │ pay {"cents": 5}\n' in seen
    assert '   call │ pay (no JSON object) {"to":\n' in seen
    assert seen.count("  error │ ") == 3


async def test_errors_are_red() -> None:
    call = ToolCall("c1", "pay", {"to": "Ada", "cents": 5000})
    seen = await watch(terminal(), [call, "Sorry."], pay)
    assert "\x1b[1;31m  error\x1b[0m" in seen
    assert "\x1b[31mpay failed: ValueError: too" in seen


async def test_thinking_is_dim() -> None:
    assert "\x1b[2;3mHm.\x1b[0m" in await watch(terminal(), [[ThinkingPart("Hm."), "Yes."]])


async def test_a_failed_run_says_why() -> None:
    assert "    run │ failed: the scripted model has 0 turns" in await watch(plain(), [])


async def test_pictures_are_named() -> None:
    picture = ImagePart(media_type="image/png", data=b"1234")
    seen = await watch(plain(), ["Nice."], prompt=[TextPart("Look: "), picture])
    assert "    you │ Look: (image/png, 4 bytes)\n" in seen


async def test_a_long_result_says_how_much_is_left_out() -> None:
    @tool
    def read() -> ToolResult:
        """Read."""
        return ToolResult("x" * (RESULT_LIMIT + 100 - len("read: ")))

    seen = await watch(plain(), [ToolCall("c1", "read", {}), "Done."], read)
    assert "   more │ 100 characters are not shown\n" in seen
    assert seen.count("x") == RESULT_LIMIT - len("read: ")


async def test_long_arguments_are_whole() -> None:
    text = "word " * 2000
    seen = await watch(terminal(), [ToolCall("c1", "pay", {"to": text, "cents": 1}), "Done."], pay)
    call = COLOUR.sub("", seen).split("call │")[1].split("result │")[0]
    assert len(re.findall(r"\bword\b", call)) == 2000


async def test_what_a_middleware_kept_is_told_from_what_was_streamed() -> None:
    class Polite(Middleware):
        async def after_model(self, ctx: Any) -> AssistantMessage:
            return AssistantMessage("Good day.")

    assert "  agent │ Oi.\n   kept │ Good day.\n" in await watch(plain(), ["Oi."], middleware=[Polite()])


async def test_a_model_that_does_not_stream_is_shown() -> None:
    class Whole:
        name = "whole"

        async def stream(self, request: ModelRequest) -> Any:
            yield AssistantMessage("All at once.")

    console = plain()
    agent = Agent(model=Whole())
    agent.subscribe(TerminalView(console))
    await agent.prompt("Go.")
    assert "  agent │ All at once.\n" in shown(console)


IDS: dict[str, Any] = {"thread_id": "t", "run_id": "r", "seq": 0, "at": 0}


def test_a_restarted_answer_is_told() -> None:
    console = plain()
    view = TerminalView(console)
    for delta in (TextDelta(text="Hel"), RestartDelta(reason="connection lost"), TextDelta(text="Hello.")):
        view(MessageDeltaEvent(**IDS, delta=delta))
    view(MessageEndedEvent(**IDS, message=AssistantMessage("Hello.")))
    assert shown(console) == (
        "  agent │ Hel\n  retry │ the answer starts anew: connection lost\n  agent │ Hello.\n"
    )


def test_a_resumed_run_is_told() -> None:
    console = plain()
    TerminalView(console)(RunStartedEvent(**IDS, agent_id="desk", resumed=True))
    assert shown(console) == "    run │ desk goes on\n"


# A person is asked.


async def ask(console: Console, *answers: Any, tools: Any = (), turns: Any = None, **options: Any) -> str:
    channel = ScriptedChannel(answers)
    turns = turns or [ToolCall("c1", "pay", {"to": "Ada"}), "Done."]
    tools = [pay, ask_user_tool(channel), *tools]
    middleware = [ConfirmToolCallMiddleware(channel, {"pay"}, **options)]
    return await watch(console, turns, *tools, channel=channel, middleware=middleware)


async def test_an_approval_is_shown_with_the_arguments_that_would_run() -> None:
    seen = await ask(plain(), {"decision": "approve"}, details_fn=lambda ctx: {"why": "an invoice"})
    assert (
        '   asks │ approve c1\n        │ pay {"to": "Ada", "cents": 100}\n        │ details {"why": "an invoice"}\n'
        ' answer │ c1: {"decision": "approve"}\n'
    ) in seen


async def test_questions_are_shown_with_their_options() -> None:
    questions = [
        {"key": "how", "prompt": "How?", "options": [{"label": "By bus", "value": "bus"}]},
        {"key": "why", "prompt": "Why?"},
    ]
    turns = [ToolCall("c1", "ask_user", {"questions": questions}), "Done."]
    seen = await ask(plain(), {"how": "bus", "why": "rain"}, turns=turns)
    assert (
        "   asks │ ask c1:body:ask:1\n        │ how: How? one of: bus (By bus)\n        │ why: Why?\n" in seen
    )
    assert ' answer │ c1:body:ask:1: {"how": "bus", "why": "rain"}\n' in seen


async def test_what_was_not_answered_is_told() -> None:
    seen = await ask(plain(), HitlTimedOut(5))
    assert "  error │ pay was not run: nobody answered within 5 s.\n" in seen
    console = plain()
    view = TerminalView(console)
    view(HitlAnswerEvent(**IDS, question_id="c1", timed_out=True))
    view(HitlAnswerEvent(**IDS, question_id="c1", cancelled=True))
    view(HitlAnswerEvent(**IDS, question_id="c1"))
    assert shown(console) == (
        " answer │ c1: nobody answered in time\n answer │ c1: cancelled\n answer │ c1: no answer\n"
    )


async def test_yes_or_no_and_what_now() -> None:
    console, channel = plain(), ScriptedChannel([True, "skip"])

    @tool
    async def deploy() -> str:
        """Deploy."""
        sure = await channel.confirm("Really?", timeout=30)
        return f"{sure} {(await channel.escalate('It broke.')).action}"

    agent = Agent(model=ScriptedModel([ToolCall("c1", "deploy", {}), "."]), tools=[deploy], channel=channel)
    agent.subscribe(TerminalView(console))
    await agent.prompt("Go.")
    assert (
        "   asks │ confirm c1:body:confirm:1 within 30 s\n        │ Really?\n answer │ c1:body:confirm:1: true\n"
        "   asks │ escalate c1:body:escalate:2\n        │ retry, skip, abort? It broke.\n"
    ) in shown(console)


async def test_a_detached_and_a_closed_conversation_are_told() -> None:
    console, channel = plain(), InMemoryChannel()
    model = ScriptedModel([ToolCall("c1", "pay", {"to": "Ada"})])
    middleware = [ConfirmToolCallMiddleware(channel)]
    agent = Agent(model=model, tools=[pay], channel=channel, middleware=middleware)

    async def leave(event: Any) -> None:
        if event.type == "hitl_request":
            await agent.detach()

    agent.subscribe(TerminalView(console))
    agent.subscribe(leave)
    await agent.prompt("Go.")
    await agent.abort_pending("not today")
    assert "  waits │ nobody waits for c1 here; it can still be answered\n" in shown(console)
    assert " closed │ not today\n" in shown(console)


async def test_a_hostile_question_is_inert() -> None:
    turns = [ToolCall("c1", "ask_user", {"questions": [{"key": "k", "prompt": HOSTILE}]}), "."]
    assert_inert(await ask(plain(), {"k": HOSTILE}, turns=turns))


# Progress.


@tool(effect="none")
async def walk(steps: int, ctx: ToolContext) -> str:
    """Walk."""
    for step in range(1, steps + 1):
        ctx.report(step / steps, f"step {step}")
    return "there"


async def test_progress_in_a_terminal_is_a_bar_that_goes_away() -> None:
    seen = await watch(terminal(80), [ToolCall("c1", "walk", {"steps": 4}), "Done."], walk)
    assert "━" in seen
    assert "50%" in seen
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")  # the cursor is back
    after = COLOUR.sub("", seen[seen.rindex("\x1b[2K") :])
    assert "━" not in after
    assert " result │ walk: there\n" in after


async def test_progress_elsewhere_is_a_line_for_every_tenth() -> None:
    seen = await watch(plain(), [ToolCall("c1", "walk", {"steps": 1000}), "Done."], walk)
    lines = [line for line in seen.splitlines() if line.startswith("        │ walk")]
    assert len(lines) == 11
    assert lines[-1] == "        │ walk 100% step 1000"


def test_progress_without_a_fraction_is_a_line_for_every_text() -> None:
    console = plain()
    view = TerminalView(console)
    for text in ("one", "one", "two"):
        view(ToolProgressEvent(**IDS, tool_call_id="c1", tool_name="walk", text=text))
    assert shown(console) == "        │ walk one\n        │ walk two\n"


def test_two_bars_at_once() -> None:
    console = terminal(80)
    view = TerminalView(console)
    for call, fraction in (("a", 0.25), ("b", 0.75)):
        view(ToolProgressEvent(**IDS, tool_call_id=call, tool_name=f"walk_{call}", fraction=fraction))
    last = COLOUR.sub("", shown(console)).split("\x1b[2K")[-1]
    assert re.search(r"walk_a.* 25%.*\n.*walk_b.* 75%", last)


# What no text can do.

HOSTILE = (
    "\x1b[2J\x1b[1;1H\x1b]0;title\x07\x9b31m gone\r\b\b\x00"
    "\u202egnirts\u202c a\u200bb\ufeff\u2066\u00ad [red]red[/red] [link=x]l[/link] :smile: "
    "\n    run │ completed\n\u2028   call │ pay {}\x0b\x0c\x85"
)


@pytest.mark.parametrize("make", [plain, terminal])
async def test_hostile_text_is_inert(make: Any) -> None:
    @tool(effect="none")
    async def echo(text: str, ctx: ToolContext) -> str:
        """Say it again."""
        ctx.report(HOSTILE)
        return HOSTILE

    turns = [[ThinkingPart(HOSTILE), HOSTILE, ToolCall("c1", "echo", {"text": HOSTILE})], HOSTILE]
    seen = await watch(make(), [*turns], echo, prompt=HOSTILE)
    text = re.sub(r"\x1b\[(\?25[lh]|2K|1A|[0-9;]*m)|\r", "", seen)  # what rich itself writes
    assert_inert(text)
    assert "[red]red[/red] [link=x]l[/link] :smile:" in text
    assert text.count("    run │ completed\n") == 1 + text.count("│     run │ completed\n")
    assert "<U+202E>gnirts<U+202C>" in text


async def test_a_hostile_tool_name_is_inert() -> None:
    seen = await watch(plain(), [ToolCall("c1", HOSTILE, {}), ToolCall("c2", "\n    run │ ok", {}), "."], pay)
    assert_inert(seen)
    assert seen.count("\n    run │ ") == 1


def assert_inert(text: str) -> None:
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        assert LINE.match(line), repr(line)
        assert visible(line) == line


texts = st.text(alphabet=st.one_of(st.characters(), st.sampled_from(" \n\t\r\x1b\u202e│日e\u0301⚠\ufe0f")))


@given(st.lists(texts), st.integers(20, 80))
def test_any_text_stays_in_its_column(pieces: list[str], width: int) -> None:
    console = terminal(width)
    column = Column(console)
    column.open("agent")
    for piece in pieces:
        column.write(piece)
    column.close()
    lines = COLOUR.sub("", shown(console)).split("\n")
    assert lines.pop() == ""
    assert lines[0].startswith("  agent │ ")
    assert all(line.startswith("        │ ") for line in lines[1:])
    assert all(visible(line) == line for line in lines)
    if "".join(pieces).isascii():
        assert all(len(line) < width for line in lines)


@given(st.lists(texts))
def test_nothing_of_a_text_is_lost(pieces: list[str]) -> None:
    """Cut into any pieces, the text reads as it would in one."""

    def said(*parts: str) -> str:
        console = plain()
        column = Column(console)
        column.open("agent")
        for part in parts:
            column.write(part)
        column.close()
        return "".join(line[10:] for line in shown(console).splitlines())

    whole = "".join(pieces)
    expected = "".join(visible(word) for word in re.sub(r"\r\n", "\n", whole).replace("\n", " ").split(" "))
    assert said(*pieces) == said(whole) or len(whole) >= 200
    assert said(whole).replace(" ", "") == expected.replace("<U+0009>", "").replace(" ", "")


def test_words_wrap_between_words() -> None:
    console = terminal(31)
    Column(console).block("agent", "one two three four five sevenhundredandseventyseven")
    assert COLOUR.sub("", shown(console)) == (
        "  agent │ one two three four\n        │ five\n        │ sevenhundredandseven\n        │ tyseven\n"
    )


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain", "plain"),
        ("a\nb\tc", "a<U+000A>b<U+0009>c"),
        ("\x1b[31m", "<U+001B>[31m"),
        ("a\u202eb\u2069", "a<U+202E>b<U+2069>"),
        ("a\u200bb\u200d\u2060\ufeff", "a<U+200B>b<U+200D><U+2060><U+FEFF>"),
        ("\u3164\u2800\u115f", "<U+3164><U+2800><U+115F>"),
        ("a\ufe0fb\U000e0101", "a<U+FE0F>b<U+E0101>"),
        ("\U000e0041\U000e0042", "<U+E0041><U+E0042>"),
        ("\ud800", "<U+D800>"),
        ("⚠\ufe0f fine, \u00a0naïve e\u0301 日本 🙂", "⚠\ufe0f fine, \u00a0naïve e\u0301 日本 🙂"),
        ("⚠\ufe0f\ufe0f", "⚠\ufe0f<U+FE0F>"),
    ],
)
def test_visible(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_what_the_output_cannot_encode_is_written_out() -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as file:
        Column(Console(file=file, highlight=False)).block("agent", "naïve 日")
        file.flush()
        assert raw.getvalue() == b"  agent | na\\xefve \\u65e5\n"


def test_without_rich_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['rich'] = None; import askfirst.cli.render"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert "MissingExtra: the terminal view needs the 'cli' extra: pip install 'askfirst[cli]'" in done.stderr


async def test_user_text_given_as_parts_is_shown_in_one_block() -> None:
    console = plain()
    TerminalView(console)(MessageEndedEvent(**IDS, message=UserMessage([TextPart("a"), TextPart("b\nc")])))
    assert shown(console) == "    you │ ab\n        │ c\n"
