"""The live agent: prompts and their results, resuming, queueing, and what it is made of."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.transcripts import Held, assert_sound, calls, open_calls, results, texts

from askfirst import Agent, AgentResult, AgentSpec, Middleware, tool
from askfirst.errors import (
    AskfirstError,
    InvalidAgent,
    InvalidMessage,
    InvalidTool,
    ModelError,
    WaitsForItself,
)
from askfirst.events import AgentEvent
from askfirst.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from askfirst.models import ModelSettings, ScriptedModel

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


ADD = ToolCall("c1", "add", {"a": 1, "b": 2})


def fail(messages: Sequence[Message]) -> str:
    raise ModelError("overloaded", status=529)


# Prompts.


async def test_a_conversation_with_a_tool() -> None:
    model = ScriptedModel([["Adding. ", ADD], "It is 3.", "You are welcome."])
    agent = Agent(model=model, tools=[add], instructions="Be brief.")
    result = await agent.prompt("1 + 2?")
    assert isinstance(result, AgentResult)
    assert (result.status, result.text, result.reason) == ("completed", "It is 3.", None)
    assert result.messages == (
        UserMessage("1 + 2?"),
        AssistantMessage([TextPart("Adding. "), ADD], stop_reason="tool_use"),
        ToolResultMessage("c1", "add", "3"),
        AssistantMessage("It is 3."),
    )
    assert agent.messages == result.messages
    assert (result.thread_id, bool(result.run_id)) == (agent.thread_id, True)
    second = await agent.prompt("Thanks")
    assert second.text == "You are welcome."
    assert second.messages[: len(result.messages)] == result.messages
    assert second.run_id != result.run_id
    assert agent.messages == second.messages


async def test_results_are_frozen_snapshots() -> None:
    agent = Agent(model=ScriptedModel(["one", "two"]))
    first = await agent.prompt("a")
    await agent.prompt("b")
    assert len(first.messages) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.text = "other"


@pytest.mark.parametrize(
    "content",
    [
        "hello",
        TextPart("hello"),
        [TextPart("see "), ImagePart(media_type="image/png", data=b"\x89PNG")],
        (TextPart("a"), TextPart("b")),
    ],
)
async def test_a_prompt_is_text_or_parts(content: Any) -> None:
    agent = Agent(model=ScriptedModel(["ok"]))
    await agent.prompt(content)
    assert agent.messages[0] == UserMessage(content)


@pytest.mark.parametrize("content", [7, None, [7], "\ud800"])
async def test_a_prompt_that_is_no_message_changes_nothing(content: Any) -> None:
    agent = Agent(model=ScriptedModel(["ok"]))
    with pytest.raises(InvalidMessage):
        await agent.prompt(content)
    with pytest.raises(InvalidMessage):
        async for _ in agent.stream(content):
            pass
    assert agent.messages == ()
    assert (await agent.prompt("hello")).text == "ok"


async def test_each_request_extends_the_one_before() -> None:
    """The prompt cache's prefix: whatever happens, a request repeats the last one exactly and goes on."""

    @tool
    async def broken() -> None:
        raise ValueError("no")

    model = ScriptedModel(
        [
            ADD,
            [ToolCall("c2", "broken", {}), ToolCall("c3", "nothing", {}), ToolCall("c4", "add", {"a": "x"})],
            "one",
            fail,
            "two",
            AssistantMessage("cut", stop_reason="length"),
        ]
    )
    agent = Agent(model=model, tools=[add, broken])
    await agent.prompt("first")
    await agent.prompt("second")
    await agent.resume()
    await agent.prompt("third")
    assert [len(request) for request in model.requests] == [1, 3, 7, 9, 10, 12]
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        assert after[: len(before)] == before
        assert len(after) > len(before)
    assert list(agent.messages[: len(model.requests[-1])]) == model.requests[-1]


async def test_usage_is_that_of_the_run() -> None:
    def said(content: Any, tokens: int) -> AssistantMessage:
        return AssistantMessage(content, usage=Usage(input_tokens=tokens, output_tokens=1))

    agent = Agent(model=ScriptedModel([said(ADD, 10), said("3", 20), said("bye", 5)]), tools=[add])
    assert (await agent.prompt("go")).usage == Usage(input_tokens=30, output_tokens=2)
    assert (await agent.prompt("bye")).usage == Usage(input_tokens=5, output_tokens=1)


async def test_an_answer_cut_off_says_so() -> None:
    agent = Agent(model=ScriptedModel([AssistantMessage("and the", stop_reason="length")]))
    result = await agent.prompt("tell me")
    assert (result.status, result.text) == ("completed", "and the")
    assert result.reason is not None
    assert "cut off" in result.reason


# Failing.


async def test_a_failing_model_fails_the_run() -> None:
    agent = Agent(model=ScriptedModel([ADD, fail]), tools=[add])
    result = await agent.prompt("go")
    assert (result.status, result.reason, result.text) == ("failed", "overloaded", "")
    assert result.messages[:-1] == (
        UserMessage("go"),
        AssistantMessage(ADD, stop_reason="tool_use"),
        ToolResultMessage("c1", "add", "3"),
    )
    assert result.messages[-1] == AssistantMessage((), stop_reason="error", error="overloaded")


async def test_a_model_that_breaks_fails_the_run(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(model=ScriptedModel([lambda _: 1 / 0]))  # pyright: ignore[reportArgumentType]
    result = await agent.prompt("go")
    assert result.status == "failed"
    assert result.reason == "ZeroDivisionError: division by zero"
    assert "model scripted failed" in caplog.text


async def test_a_model_that_says_nothing_fails_the_run() -> None:
    class Mute:
        name = "mute"

        async def stream(self, request: Any) -> Any:
            for never in ():
                yield never

    result = await Agent(model=Mute()).prompt("go")
    assert result.status == "failed"
    assert result.reason is not None
    assert "without a message" in result.reason


async def test_a_model_that_says_it_failed() -> None:
    said = AssistantMessage([TextPart("hm"), ADD], stop_reason="error")
    result = await Agent(model=ScriptedModel([said]), tools=[add]).prompt("go")
    assert result.status == "failed"
    assert result.reason
    assert open_calls(result.messages) == []


async def test_resume_after_a_failure_asks_again() -> None:
    model = ScriptedModel([fail, "better"])
    agent = Agent(model=model)
    failed = await agent.prompt("go")
    result = await agent.resume()
    assert (result.status, result.text) == ("completed", "better")
    assert result.messages[: len(failed.messages)] == failed.messages
    assert result.run_id == failed.run_id
    assert len(model.requests) == 2


async def test_prompt_after_a_failure() -> None:
    agent = Agent(model=ScriptedModel([fail, "better"]))
    await agent.prompt("go")
    assert (await agent.prompt("again")).text == "better"


async def test_an_exhausted_script_is_a_failure() -> None:
    result = await Agent(model=ScriptedModel([])).prompt("go")
    assert result.status == "failed"
    assert result.reason is not None
    assert "0 turns" in result.reason


async def test_max_iterations() -> None:
    model = ScriptedModel([ToolCall("c", "add", {"a": 1, "b": 1})] * 3 + ["done"])
    agent = Agent(model=model, tools=[add], max_iterations=3)
    result = await agent.prompt("go")
    assert result.status == "failed"
    assert result.reason == "the model was asked 3 times (max_iterations) and is not done"
    assert len(model.requests) == 3
    assert texts(result.messages) == ["2", "2", "2"]
    assert_sound(result.messages)
    assert (await agent.prompt("more")).text == "done"


async def test_max_iterations_counts_one_prompt_only() -> None:
    agent = Agent(model=ScriptedModel(["one", "two", "three"]), max_iterations=1)
    assert [(await agent.prompt("x")).status for _ in range(3)] == ["completed"] * 3


async def test_the_default_limit_is_fifty() -> None:
    model = ScriptedModel([ToolCall("c", "add", {"a": 1, "b": 1})] * 60)
    result = await Agent(model=model, tools=[add]).prompt("go")
    assert (result.status, len(model.requests)) == ("failed", 50)


# Resuming.


async def test_resume_runs_the_open_calls_of_a_transcript() -> None:
    transcript = [
        UserMessage("go"),
        AssistantMessage([ADD, ToolCall("c2", "add", {"a": 5, "b": 5})], stop_reason="tool_use"),
        ToolResultMessage("c1", "add", "3"),
    ]
    model = ScriptedModel(["done"])
    agent = Agent(model=model, tools=[add], messages=transcript)
    result = await agent.resume()
    assert (result.status, result.text) == ("completed", "done")
    assert result.messages[:4] == (*transcript, ToolResultMessage("c2", "add", "10"))
    assert model.requests == [list(result.messages[:4])]


async def test_resume_of_a_question_asks_the_model() -> None:
    agent = Agent(model=ScriptedModel(["hello"]), messages=[UserMessage("hi")])
    assert (await agent.resume()).text == "hello"


@pytest.mark.parametrize("transcript", [(), (UserMessage("hi"), AssistantMessage("hello"))])
async def test_resume_of_nothing_does_nothing(transcript: Sequence[Message]) -> None:
    model = ScriptedModel([])
    agent = Agent(model=model, messages=transcript)
    result = await agent.resume()
    assert (result.status, result.messages) == ("completed", tuple(transcript))
    assert model.requests == []


async def test_prompt_over_open_calls_resolves_them_first() -> None:
    transcript = [UserMessage("go"), AssistantMessage([ADD, *calls("x", "y")[1:]], stop_reason="tool_use")]
    ran: list[int] = []

    @tool(name="add")
    async def never(a: int, b: int) -> None:
        ran.append(a)

    agent = Agent(model=ScriptedModel(["ok"]), tools=[never], messages=transcript)
    result = await agent.prompt("never mind")
    assert ran == []
    assert [type(message).__name__ for message in result.messages[2:]] == [
        "ToolResultMessage",
        "ToolResultMessage",
        "UserMessage",
        "AssistantMessage",
    ]
    for synthetic in results(result.messages).values():
        assert synthetic.is_error
        assert synthetic.details == {"synthetic": True}
        assert "Not run" in synthetic.text
    assert_sound(result.messages)


async def test_a_call_id_that_no_store_could_ask_about_is_cut() -> None:
    long = [ToolCall("x" * 250 + end, "add", {"a": 1, "b": 2}) for end in "ab"]
    result = await Agent(model=ScriptedModel([[*long], "done"]), tools=[add]).prompt("go")
    assert [call.id for call in result.messages[1].tool_calls] == ["x" * 35, "x" * 35 + "-2"]  # type: ignore[union-attr]
    assert_sound(result.messages)


# Queueing.


async def test_prompts_wait_their_turn_in_order() -> None:
    asked, first = asyncio.Event(), asyncio.Event()
    running = 0

    async def turn(messages: list[Message]) -> str:
        nonlocal running
        running += 1
        assert running == 1, "two runs at once"
        asked.set()
        await first.wait()
        await asyncio.sleep(0)
        running -= 1
        last = messages[-1]
        assert isinstance(last, UserMessage)
        return f"re: {last.text}"

    model = ScriptedModel([turn] * 3)
    agent = Agent(model=model)
    tasks = [asyncio.create_task(agent.prompt(text)) for text in ("a", "b", "c")]
    await asked.wait()
    assert [message.text for message in agent.messages if isinstance(message, UserMessage)] == ["a"]
    first.set()
    finished = await asyncio.gather(*tasks)
    assert [result.text for result in finished] == ["re: a", "re: b", "re: c"]
    said = [message.text for message in agent.messages if not isinstance(message, ToolResultMessage)]
    assert said == ["a", "re: a", "b", "re: b", "c", "re: c"]


async def test_resume_waits_its_turn_too() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "done"]), tools=[held.tool])
    prompt = asyncio.create_task(agent.prompt("go"))
    await held.started.wait()
    resume = asyncio.create_task(agent.resume())
    await asyncio.sleep(0)
    assert not resume.done()
    held.release.set()
    assert (await prompt).text == (await resume).text == "done"


async def test_a_tool_that_awaits_its_own_agents_next_run_is_told_so() -> None:
    said: list[str] = []

    @tool
    async def again() -> str:
        """Go on."""
        for run in (lambda: agent.prompt("more"), agent.resume, agent.load):
            with pytest.raises(WaitsForItself) as refused:
                await run()
            said.append(refused.value.thread_id)
        return "ok"

    agent = Agent(model=ScriptedModel([calls("again"), "done", "and more"]), tools=[again])
    async with asyncio.timeout(PATIENCE):
        assert (await agent.prompt("go")).text == "done"
    assert said == [agent.thread_id] * 3
    assert (await agent.prompt("go on")).text == "and more"


async def test_a_listener_that_awaits_the_next_run_is_told_so_and_a_task_has_its_turn() -> None:
    refused: list[type[BaseException]] = []
    later: list[asyncio.Task[AgentResult]] = []

    async def listen(event: AgentEvent) -> None:
        if event.type == "run_ended" and not later:
            later.append(asyncio.create_task(agent.prompt("next")))
            try:
                await agent.prompt("now")
            except WaitsForItself as error:
                refused.append(type(error))

    agent = Agent(model=ScriptedModel(["one", "two"]))
    agent.subscribe(listen)
    async with asyncio.timeout(PATIENCE):
        assert (await agent.prompt("go")).text == "one"
        assert (await later[0]).text == "two"
    assert refused == [WaitsForItself]


async def test_a_waiting_prompt_that_is_cancelled_leaves_no_trace() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "one", "three"]), tools=[held.tool])
    first = asyncio.create_task(agent.prompt("one"))
    await held.started.wait()
    second, third = (asyncio.create_task(agent.prompt(text)) for text in ("two", "three"))
    await asyncio.sleep(0)
    second.cancel()
    held.release.set()
    assert (await first).text == "one"
    assert (await third).text == "three"
    assert second.cancelled()
    assert "two" not in [message.text for message in agent.messages if isinstance(message, UserMessage)]


# What agents are made of.


async def test_spec_and_agent_are_two_doors_to_the_same() -> None:
    settings = ModelSettings(temperature=0)
    spec = AgentSpec(
        "helper", ScriptedModel(["one", "two"]), [add], "Be brief.", settings=settings, max_iterations=7
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.id = "other"
    agent = Agent.from_spec(spec, thread_id="t1", messages=[UserMessage("a"), AssistantMessage("b")])
    assert (agent.spec, agent.thread_id, len(agent.messages)) == (spec, "t1", 2)
    assert (await agent.prompt("go")).text == "one"
    other = Agent.from_spec(spec)
    assert other.thread_id != agent.thread_id
    assert (await other.prompt("go")).text == "two"
    assert len(other.messages) == 2


async def test_the_model_is_told_of_instructions_tools_and_settings() -> None:
    asked: list[Any] = []

    class Spy(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            asked.append(request)
            async for item in super().stream(request):
                yield item

    settings = ModelSettings(temperature=0.5, extra={"x": 1})
    await Agent(model=Spy(["ok"]), tools=[add], instructions="Be brief.", settings=settings).prompt("hi")
    (request,) = asked
    assert (request.instructions, request.settings) == ("Be brief.", settings)
    assert [each.name for each in request.tools] == ["add"]
    assert request.messages == (UserMessage("hi"),)


def test_agents_that_do_not_fit_together() -> None:
    @tool(name="add")
    def other() -> None: ...

    model = ScriptedModel([])
    with pytest.raises(InvalidAgent, match="two tools are called 'add'") as caught:
        Agent(model=model, tools=[add, other])
    assert isinstance(caught.value, AskfirstError)
    for limit in (0, -1, 1.5, "many"):
        with pytest.raises(InvalidAgent, match="max_iterations"):
            Agent(model=model, max_iterations=limit)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidAgent, match="not a Middleware"):
        Agent(model=model, middleware=[object()])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidTool):
        Agent(model=model, tools=[lambda x: x])


def test_the_lists_given_are_not_kept() -> None:
    tools, layers, messages = [add], [Middleware()], [UserMessage("a")]
    agent = Agent(model=ScriptedModel([]), tools=tools, middleware=layers, messages=messages)
    tools.clear()
    layers.clear()
    messages.clear()
    assert agent.spec.tools == (add,)
    assert len(agent.spec.middleware) == len(agent.messages) == 1


# Ids.


async def test_a_model_that_numbers_its_calls_anew() -> None:
    again = ToolCall("c1", "add", {"a": 1, "b": 1})
    model = ScriptedModel([again, [again, again, ToolCall("", "add", {"a": 1, "b": 1})], again, "done"])
    result = await Agent(model=model, tools=[add]).prompt("go")
    assert_sound(result.messages)
    assert list(results(result.messages)) == ["c1", "c1-2", "c1-3", "call", "c1-4"]
    assert result.status == "completed"


async def test_ids_stay_short_enough_for_every_provider() -> None:
    long = ToolCall("c" * 40, "add", {"a": 1, "b": 1})
    result = await Agent(model=ScriptedModel([[long] * 12, "done"]), tools=[add]).prompt("go")
    assert_sound(result.messages)
    assert max(len(call_id) for call_id in results(result.messages)) <= 40


async def test_ids_are_unique_beside_those_of_a_given_transcript() -> None:
    old = [
        UserMessage("a"),
        AssistantMessage(ADD),
        ToolResultMessage("c1", "add", "3"),
        AssistantMessage("b"),
    ]
    result = await Agent(model=ScriptedModel([ADD, "done"]), tools=[add], messages=old).prompt("go")
    assert list(results(result.messages)) == ["c1", "c1-2"]


@pytest.mark.parametrize("model", [5, None, ScriptedModel, object()])
def test_what_is_no_model_is_refused_when_the_agent_is_made(model: Any) -> None:
    with pytest.raises(InvalidAgent, match="is not a model; give a Model"):
        Agent(model=model)


@pytest.mark.parametrize("thread_id", ["", 5, b"thread"])
def test_what_is_no_id_begins_no_new_thread(thread_id: Any) -> None:
    with pytest.raises(InvalidAgent, match="thread_id is a text, not"):
        Agent(model=ScriptedModel([]), thread_id=thread_id)


def test_what_is_no_tool_is_named() -> None:
    with pytest.raises(InvalidAgent, match="5 is not a tool; give a function"):
        Agent(model=ScriptedModel([]), tools=[5])  # pyright: ignore[reportArgumentType]
