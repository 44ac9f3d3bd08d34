"""The test kit: scripted people, a clock to turn by hand, crashes on demand."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from kit.paths import ROOT
from kit.warm_python import warm_python

from askfirst import Agent, tool
from askfirst.checkpointer import base
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import HitlCancelled, HitlError, HitlInvalidAnswer, HitlTimedOut
from askfirst.events import HitlAnswerEvent, HitlRequestEvent
from askfirst.hitl import ApproveAnswer, EscalateAnswer, HitlRequest, InMemoryChannel, Option, Question
from askfirst.hitl import testing as kit
from askfirst.hitl.testing import FakeClock, NoopChannel, ScriptedChannel, crash_at
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

PAGE = ROOT / "docs" / "guide" / "testing.md"
pytestmark = pytest.mark.anyio


def test_what_is_in_the_kit() -> None:
    assert {"FakeClock", "NoopChannel", "ScriptedChannel", "crash_at", "race_answers"} <= set(kit.__all__)
    for name in kit.__all__:
        assert inspect.getdoc(getattr(kit, name)), name


# ScriptedChannel.


async def test_scripted_answers_are_consumed_in_order() -> None:
    ch = ScriptedChannel(
        answers=[
            ApproveAnswer(decision="approve"),
            {"color": "red"},
            lambda req: ApproveAnswer(decision="deny", reason=f"test {req.question_id}"),
            True,
            "skip",
        ]
    )
    assert ch.history == []
    assert (await ch.approve("bash", "tc1", {"cmd": "ls"})).decision == "approve"
    assert await ch.ask([Question(key="color", prompt="Which?")]) == {"color": "red"}
    denied = await ch.approve("bash", "tc2", {})
    assert (denied.decision, denied.reason) == ("deny", "test tc2")
    assert await ch.confirm("?") is True
    assert await ch.escalate("?") == EscalateAnswer(action="skip")
    assert [request.payload.kind for request in ch.history] == [
        *("approve", "ask", "approve", "confirm", "escalate")
    ]
    assert ch.pending is None


async def test_a_scripted_exception_is_raised_where_the_answer_is_awaited() -> None:
    ch = ScriptedChannel([HitlTimedOut(5.0), lambda req: HitlCancelled("no"), True])
    with pytest.raises(HitlTimedOut):
        await ch.confirm("?")
    with pytest.raises(HitlCancelled):
        await ch.confirm("?")
    assert await ch.confirm("?") is True
    assert len(ch.history) == 3


async def test_a_scripted_exception_may_be_given_by_its_class() -> None:
    ch = ScriptedChannel([HitlTimedOut, lambda req: HitlCancelled, True])
    with pytest.raises(HitlTimedOut):
        await ch.confirm("?")
    with pytest.raises(HitlCancelled):
        await ch.confirm("?")
    assert await ch.confirm("?") is True


async def test_a_scripted_function_may_be_async() -> None:
    async def deny(request: HitlRequest) -> Any:
        await asyncio.sleep(0)
        return {"decision": "deny", "reason": request.question_id}

    async def fail(request: HitlRequest) -> Any:
        raise HitlCancelled("no")

    ch = ScriptedChannel([deny, fail])
    assert (await ch.approve("bash", "tc1", {})).reason == "tc1"
    with pytest.raises(HitlCancelled):
        await ch.approve("bash", "tc2", {})


async def test_scripted_answers_are_checked_like_a_persons() -> None:
    ch = ScriptedChannel(["yes", {"color": "green"}])
    with pytest.raises(HitlInvalidAnswer):
        await ch.confirm("?")
    red = Option(label="Red", value="red")
    with pytest.raises(HitlInvalidAnswer, match="color"):
        await ch.ask([Question(key="color", prompt="?", options=[red])])


async def test_an_exhausted_script_says_so_and_leaves_nothing_open() -> None:
    ch = ScriptedChannel([True])
    await ch.confirm("one")
    with pytest.raises(HitlError, match="1 answer"):
        await ch.confirm("two")
    assert await ch.open_request() is None

    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent(
        model=ScriptedModel([ToolCall("c1", "pay", {}), "x"]), tools=[pay], channel=ScriptedChannel()
    )
    with pytest.raises(HitlError):
        await agent.prompt("go")
    assert await agent.load_pending_hitl_request() is None


async def test_listeners_and_subscribers_hear_of_scripted_requests() -> None:
    ch = ScriptedChannel([{"decision": "approve"}])
    requests = ch.subscribe()

    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent(model=ScriptedModel([ToolCall("c1", "pay", {}), "x"]), tools=[pay], channel=ch)
    heard: list[Any] = []
    agent.subscribe(
        lambda event: heard.append(event) if isinstance(event, HitlRequestEvent | HitlAnswerEvent) else None
    )
    await agent.prompt("go")
    assert [event.type for event in heard] == ["hitl_request", "hitl_answer"]
    assert await anext(requests) == ch.history[0] == heard[0].request


# NoopChannel.


async def test_a_noop_channel_says_yes() -> None:
    ch = NoopChannel()
    assert (await ch.approve("bash", "tc", {})).decision == "approve"
    assert (await ch.confirm("?")) is True
    assert await ch.ask([Question(key="k", prompt="p")]) == {"k": ""}
    options = [Option(label="A", value="a"), Option(label="B", value="b")]
    questions = [
        Question(key="one", prompt="?", options=options),
        Question(key="many", prompt="?", options=options, multi_select=True),
        Question(key="free", prompt="?", multi_select=True),
    ]
    assert await ch.ask(questions) == {"one": "a", "many": ["a"], "free": [""]}
    assert (await ch.approve("bash", "tc", {})).decision == "approve"


async def test_a_noop_channel_repeats_nothing_that_is_in_doubt() -> None:
    ch = NoopChannel()
    assert await ch.escalate("?") == EscalateAnswer(action="skip")
    assert (await ch.escalate("?", choices=["retry", "abort"])).action == "abort"


# FakeClock.


async def test_a_fake_clock_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock()
    began = clock.now()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now() - began))

    tasks = [
        asyncio.create_task(sleeper(name, seconds)) for name, seconds in (("b", 20), ("a", 10), ("c", 30))
    ]
    await clock.advance(9)
    assert woken == []
    await clock.advance(11)
    assert woken == [("a", 10), ("b", 20)]
    assert clock.now() == began + 20
    await clock.advance(100)
    assert woken[-1] == ("c", 30)
    assert clock.now() == began + 120
    await asyncio.gather(*tasks)


async def test_who_wakes_may_sleep_again_within_one_advance() -> None:
    clock, ticks = FakeClock(1000.0), []

    async def tick() -> None:
        for _ in range(3):
            await clock.sleep(10)
            ticks.append(clock.now())

    task = asyncio.create_task(tick())
    await clock.advance(25)
    assert ticks == [1010.0, 1020.0]
    await clock.advance(5)
    await task
    assert ticks[-1] == 1030.0


async def test_a_sleeper_that_is_cancelled_is_forgotten() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await clock.advance(20)
    await clock.sleep(0)
    await clock.sleep(-1)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, -0.001, None, "5", True])
async def test_a_fake_clock_goes_neither_back_nor_out_of_time(seconds: Any) -> None:
    clock = FakeClock(1000.0)
    with pytest.raises(
        ValueError, match=r"^a clock is advanced by a number of seconds, at least 0, not by .*$"
    ):
        await clock.advance(seconds)
    await clock.advance(0)
    assert clock.now() == 1000.0


async def test_a_fake_clock_drives_time_outs() -> None:
    clock = FakeClock()
    channel = InMemoryChannel(default_timeout=180.0, clock=clock)
    task = asyncio.create_task(channel.confirm("?"))
    await clock.advance(179)
    assert not task.done()
    await clock.advance(1)
    with pytest.raises(HitlTimedOut):
        await task


# Crashes.

CRASHING = """
    import asyncio, sys
    from contextlib import nullcontext
    from askfirst import Agent, tool
    from askfirst.checkpointer.sqlite import SQLiteCheckpointer
    from askfirst.hitl.testing import crash_at
    from askfirst.messages import ToolCall
    from askfirst.models import ScriptedModel

    path, point, skip = sys.argv[1], sys.argv[2], int(sys.argv[3])

    @tool
    async def pay() -> str:
        print("body", flush=True)
        return "paid"

    async def main():
        async with SQLiteCheckpointer(path) as checkpointer:
            calls = [ToolCall("c1", "pay", {}), ToolCall("c2", "pay", {}), "done"]
            agent = Agent(model=ScriptedModel(calls), tools=[pay], checkpointer=checkpointer, thread_id="t")
            with crash_at(point, skip=skip):
                await agent.prompt("go")
            await agent.prompt("the script is at its end; and no crash point is left")
            print("survived", flush=True)

    asyncio.run(main())
"""


def crash(path: Path, point: str, skip: int = 0) -> tuple[int, list[str]]:
    done = subprocess.run(  # noqa: S603
        [*warm_python(), "-c", textwrap.dedent(CRASHING), str(path), point, str(skip)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.split()


@pytest.mark.parametrize(
    ("point", "skip", "printed", "messages", "in_doubt"),
    [
        ("before:prompt", 0, [], 0, []),
        ("prompt", 0, [], 1, []),
        ("before:effect.started", 0, [], 1, []),
        ("effect.started", 0, [], 2, ["c1"]),
        ("before:effect.ended", 0, ["body"], 2, ["c1"]),
        ("effect.ended", 0, ["body"], 3, []),
        ("effect.started", 1, ["body"], 4, ["c2"]),
        ("run.ended", 0, ["body", "body"], 6, []),
    ],
)
async def test_a_process_dies_where_it_is_told_to(
    tmp_path: Path, point: str, skip: int, printed: list[str], messages: int, in_doubt: list[str]
) -> None:
    path = tmp_path / "t.db"
    code, said = await asyncio.to_thread(crash, path, point, skip)
    assert (code, said) == (-signal.SIGKILL, printed)
    async with SQLiteCheckpointer(path) as checkpointer:
        thread = await checkpointer.load("t")
    assert (len(thread.messages) if thread else 0) == messages
    assert (list(thread.effects) if thread else []) == in_doubt


async def test_a_point_that_is_not_reached_harms_nobody(tmp_path: Path) -> None:
    code, said = await asyncio.to_thread(crash, tmp_path / "t.db", "request.opened")
    assert (code, said[-1]) == (0, "survived")


@pytest.mark.parametrize("point", ["nonsense", "effect", "after:effect.started", ""])
def test_a_point_that_there_is_not_is_refused(point: str) -> None:
    known = r"is not a crash point; there are effect\.started, .*before:"
    with pytest.raises(HitlError, match=known), crash_at(point):
        pass
    assert base.hook is None


def test_a_point_is_a_text() -> None:
    nothing: Any = None
    for own in (False, True):
        with (
            pytest.raises(HitlError, match=r"^a point to crash at is a text, not NoneType$"),
            crash_at(nothing, own=own),
        ):
            pass


def test_each_point_is_known() -> None:
    for point in base.POINTS:
        assert f"`{point}`" in PAGE.read_text()
        for at in (point, f"before:{point}"):
            with crash_at(at):
                base.reached("step" if at == "prompt" else "prompt")


def test_a_crash_point_is_set_only_within() -> None:
    assert base.hook is None
    with crash_at("nowhere", own=True):
        assert base.hook is not None
        base.reached("somewhere else")
    assert base.hook is None
