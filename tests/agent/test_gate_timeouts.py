"""A call waits for a person as long as the rule, the tool or the agent says; with or without a channel."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from kit.channel_rigs import asked
from kit.transcripts import results

from askfirst import Agent, AgentSpec, ApprovalResponse, RunCheckpoint, run_agent, run_agent_resume, tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import HitlStaleAnswer, InvalidAgent, InvalidPolicy, InvalidTool
from askfirst.hitl import InMemoryChannel
from askfirst.hitl.testing import FakeClock
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.permissions import Rule, Scope, StaticPermissionPolicy

pytestmark = pytest.mark.anyio
CALL = ToolCall("c1", "pay", {"cents": 1})
APPROVE = {"decision": "approve"}


def pay(done: list[int], **options: Any) -> Any:
    @tool(requires_approval=True, **options)
    async def pay(cents: int) -> str:
        done.append(cents)
        return "paid"

    return pay


def ask(timeout: Any = None) -> StaticPermissionPolicy:
    rule = Rule(id="r", scope=Scope(tool="pay"), effect="require_approval", approval_timeout=timeout)
    return StaticPermissionPolicy([rule])


@pytest.mark.parametrize(
    ("rule", "of_tool", "of_agent", "seconds"),
    [
        (None, None, None, None),
        (None, None, 60, 60.0),
        (None, "30m", 60, 1800.0),
        ("24h", "30m", 60, 86_400.0),
        (0.5, None, None, 0.5),
    ],
)
async def test_the_most_specific_wins(rule: Any, of_tool: Any, of_agent: Any, seconds: float | None) -> None:
    tools = [pay([], approval_timeout=of_tool)]
    spec = AgentSpec("a", ScriptedModel([CALL]), tools, policy=ask(rule), approval_timeout=of_agent)
    (pending,) = (await run_agent(spec, "go")).pending_approvals
    lasts = None if pending.expires_at is None else pending.expires_at - pending.created_at
    assert lasts == pytest.approx(seconds)
    channel = InMemoryChannel(default_timeout=7)
    options: Any = {
        "model": ScriptedModel([CALL, "Done."]),
        "policy": ask(rule),
        "approval_timeout": of_agent,
    }
    agent = Agent(channel=channel, tools=tools, **options)
    run = asyncio.create_task(agent.prompt("go"))
    request = await asked(channel)
    assert request.timeout_seconds == (7 if seconds is None else seconds)
    await channel.answer("c1", {"decision": "deny"})
    await run


async def test_a_stored_pause_ends_by_itself() -> None:
    done: list[int] = []
    clock = FakeClock(time.time())
    async with MemoryCheckpointer(clock=clock) as store:

        def agent(thread_id: str, *turns: Any) -> Agent:
            model = ScriptedModel(turns)
            return Agent(
                model=model, tools=[pay(done)], checkpointer=store, thread_id=thread_id, approval_timeout=60
            )

        for thread_id in ("swept", "resumed", "answered"):
            assert (await agent(thread_id, CALL).prompt("go")).status == "paused"
        await clock.advance(120)
        with pytest.raises(HitlStaleAnswer) as late:
            await agent("answered").resume_with([ApprovalResponse(id="c1", decision="approve")])
        assert late.value.status == "timed_out"
        result = await agent("resumed", "Never mind.").resume()
        assert (await store.request("resumed", "c1")).status == "timed_out"  # pyright: ignore[reportOptionalMemberAccess]
        assert [it.thread_id for it in await store.expire_due()] == ["swept"]
        swept = await agent("swept", "Never mind.").resume()
    for ended in (result, swept):
        assert (ended.status, ended.text) == ("completed", "Never mind.")
        told = results(ended.messages)["c1"]
        assert told.details is not None
        assert told.details["hitl"]["decision"] == "timed_out"
    assert done == []


async def test_an_answer_to_a_checkpoint_after_its_deadline_is_too_late() -> None:
    done: list[int] = []
    spec = AgentSpec("a", ScriptedModel([CALL, "Never mind."]), [pay(done)], approval_timeout="1h")
    paused = await run_agent(spec, "go")
    assert paused.checkpoint is not None
    plain = json.loads(paused.checkpoint.to_json())
    plain["pending"][0]["created_at"] -= 7200
    plain["pending"][0]["expires_at"] -= 7200
    checkpoint = RunCheckpoint.from_json(plain)
    with pytest.raises(HitlStaleAnswer) as late:
        await run_agent_resume(spec, checkpoint, [ApprovalResponse(id="c1", decision="approve")])
    assert late.value.status == "timed_out"
    result = await run_agent_resume(spec, checkpoint, [])
    assert (result.text, done) == ("Never mind.", [])
    told = results(result.messages)["c1"]
    assert told.details is not None
    assert told.details["hitl"]["decision"] == "timed_out"


@pytest.mark.parametrize("wrong", [0, -1, True, "soon", "", float("nan"), [1], 1e13])
def test_what_is_no_length_of_time_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidAgent, match="approval_timeout"):
        Agent(model=ScriptedModel([]), approval_timeout=wrong)
    with pytest.raises(InvalidTool, match="tool 'pay': approval_timeout"):
        pay([], approval_timeout=wrong)
    with pytest.raises(InvalidPolicy, match="approval_timeout"):
        ask(wrong)


@pytest.mark.parametrize("suffix", ["yaml", "json", "toml"])
def test_a_policy_file_says_how_long(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"policy.{suffix}"
    texts = {
        "yaml": "rules:\n  - id: r\n    effect: require_approval\n    approval_timeout: {}\n",
        "json": '{{"rules": [\n{{"id": "r", "effect": "require_approval",\n\n"approval_timeout": {}}}]}}',
        "toml": '[[rules]]\nid = "r"\neffect = "require_approval"\napproval_timeout = {}\n',
    }
    file.write_text(texts[suffix].format('"24h"'))
    assert StaticPermissionPolicy.from_file(file).rules[0].approval_timeout == 86_400
    file.write_text(texts[suffix].format('"soon"'))
    with pytest.raises(InvalidPolicy) as refused:
        StaticPermissionPolicy.from_file(file)
    assert f"policy.{suffix}:4: rule 'r': approval_timeout cannot be read" in str(refused.value)
    file.write_text(texts[suffix].format("5").replace("require_approval", "allow"))
    with pytest.raises(InvalidPolicy, match=":4: rule 'r': approval_timeout goes with"):
        StaticPermissionPolicy.from_file(file)
