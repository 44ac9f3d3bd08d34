"""A question about a result, asked in `after_tool_call`: without a yes, the model is not shown the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.transcripts import calls, results

from askfirst import Agent, Middleware, tool
from askfirst.agent.spec import ToolCallContext
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import HitlNoPendingRequest, HitlStaleAnswer
from askfirst.hitl import CheckpointedChannel, InMemoryChannel
from askfirst.messages import Message, ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
UNSEEN = "the secret file"


class Rig:
    """An agent that reads, a hook that asks whether the model may see it, and what the model then saw."""

    def __init__(self, channel: Any, *, after: Exception | None = None) -> None:
        self.channel, self.seen, self.ran = channel, list[str](), 0

        @tool
        async def read() -> str:
            """Read."""
            self.ran += 1
            return UNSEEN

        class Filter(Middleware):
            async def after_tool_call(self, ctx: ToolCallContext) -> ToolResultMessage | None:
                shown = await channel.confirm("Show it to the model?")
                if after is not None:
                    raise after
                assert ctx.result is not None
                return None if shown else ctx.result.model_copy(update={"content": ()})

        def look(messages: tuple[Message, ...]) -> str:
            self.seen += [message.text for message in messages if message.role == "tool"]
            return "done"

        model = ScriptedModel([calls("read"), look, look])
        self.agent = Agent(model=model, tools=[read], middleware=[Filter()], channel=channel)

    async def asked(self) -> asyncio.Task[Any]:
        """A run that waits for the answer."""
        run = asyncio.create_task(self.agent.prompt("go"))
        async for _ in self.channel.subscribe():
            return run
        raise AssertionError


@pytest.fixture(params=["in memory", "checkpointed"])
async def channel(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with asyncio.timeout(PATIENCE), MemoryCheckpointer() as checkpointer:
        if request.param == "in memory":
            yield InMemoryChannel()
        else:
            yield CheckpointedChannel(checkpointer=checkpointer, thread_id="t", allow_inside_custom_tool=True)


@pytest.mark.parametrize(("answer", "seen"), [(True, UNSEEN), (False, "")])
async def test_the_answer_counts(channel: Any, answer: bool, seen: str) -> None:
    rig = Rig(channel)
    run = await rig.asked()
    await channel.answer(channel.pending.question_id, answer)
    assert (await run).status == "completed"
    assert rig.seen == [seen]


@pytest.mark.parametrize("answer", [True, False, None])
async def test_after_a_detach_the_result_is_withheld(channel: Any, answer: bool | None) -> None:
    rig = Rig(channel)
    run = await rig.asked()
    asked = channel.pending
    await rig.agent.detach()
    assert (await run).status == "suspended"
    if answer is not None:
        with suppress(HitlStaleAnswer, HitlNoPendingRequest):  # what was stored is withdrawn by now
            await rig.agent.respond(question_id=asked.question_id, answer=answer)
    result = await rig.agent.resume()
    assert (result.status, rig.ran) == ("completed", 1)
    assert rig.seen == [
        "read ran, but what came of it is withheld: a person was asked about it, and has not answered."
    ]
    assert results(result.messages)["c1"].is_error
    assert await rig.agent.load_pending_hitl_request() is None
    assert (await rig.agent.prompt("more")).status == "completed"


@pytest.mark.parametrize("answer", [True, False, None])
async def test_after_a_shutdown_the_result_is_withheld(channel: Any, answer: bool | None) -> None:
    rig = Rig(channel)
    run = await rig.asked()
    asked = channel.pending
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    result = (
        await rig.agent.resume()
        if answer is None
        else await rig.agent.respond(question_id=asked.question_id, answer=answer)
    )
    assert result is not None
    assert (result.status, rig.ran) == ("completed", 1)
    assert [UNSEEN in each for each in rig.seen] == [False]
    assert await rig.agent.load_pending_hitl_request() is None


async def test_a_time_out_and_a_cancel_withhold_it_and_the_run_goes_on(channel: Any) -> None:
    rig = Rig(channel)
    run = await rig.asked()
    await channel.cancel(channel.pending.question_id, "no time")
    result = await run
    assert result.status == "completed"
    withheld = "a person was asked, and the request was cancelled (no time)"
    assert rig.seen == [f"read ran, but what came of it is withheld: {withheld}."]
    assert results(result.messages)["c1"].details == {"hitl": {"withheld": withheld}}

    rig = Rig(InMemoryChannel(default_timeout=0.01))
    assert (await rig.agent.prompt("go")).status == "completed"
    assert "nobody answered" in rig.seen[0]


async def test_an_abort_closes_the_conversation_and_shows_nothing(channel: Any) -> None:
    rig = Rig(channel)
    run = await rig.asked()
    await rig.agent.abort_pending("stop")
    result = await run
    assert result.status == "aborted"
    assert UNSEEN not in str(result.messages)


async def test_a_hook_that_fails_after_it_asked_shows_nothing(channel: Any) -> None:
    rig = Rig(channel, after=ValueError("oops"))
    run = await rig.asked()
    await channel.answer(channel.pending.question_id, False)
    assert (await run).status == "completed"
    assert rig.seen == ["read ran, but what came of it is withheld: a check of it failed (ValueError)."]


async def test_a_durable_channel_wants_to_be_told_that_this_is_no_safe_point() -> None:
    async with asyncio.timeout(PATIENCE), MemoryCheckpointer() as checkpointer:
        rig = Rig(CheckpointedChannel(checkpointer=checkpointer, thread_id="t"))
        assert (await rig.agent.prompt("go")).status == "completed"
        assert rig.seen == [
            "read ran, but what came of it is withheld: a check of it failed (HitlDurabilityNotGuaranteed)."
        ]


@pytest.mark.parametrize("hook", ["before_model", "after_model"])
async def test_a_question_around_the_model_that_nobody_answers_fails_the_run(hook: str) -> None:
    channel = InMemoryChannel(default_timeout=0.01)

    async def ask(_self: Any, ctx: Any, *_: Any) -> Any:
        await channel.confirm("May it?")
        return ctx

    around = type("Around", (Middleware,), {hook: ask})()
    agent = Agent(model=ScriptedModel(["done"]), middleware=[around], channel=channel)
    async with asyncio.timeout(PATIENCE):
        result = await agent.prompt("go")
    assert result.status == "failed"
    assert result.reason is not None
    assert result.reason.startswith("a person was asked, and nobody answered")


async def test_what_a_body_did_before_its_question_stands() -> None:
    channel, paid = InMemoryChannel(default_timeout=0.01), list[int]()

    @tool
    async def transfer(cents: int) -> str:
        """Transfer."""
        paid.append(cents)
        await channel.confirm("Send a receipt?")
        return "transferred"

    model = ScriptedModel([ToolCall("c1", "transfer", {"cents": 5}), "done"])
    agent = Agent(model=model, tools=[transfer], channel=channel)
    async with asyncio.timeout(PATIENCE):
        result = await agent.prompt("go")
    told = results(result.messages)["c1"]
    assert (paid, told.is_error) == ([5], True)
    assert "not run" not in told.text
    assert told.text.endswith("What it had done by then stands.")
    assert told.details is not None
    assert told.details["hitl"]["decision"] == "timed_out"  # type: ignore[index]
