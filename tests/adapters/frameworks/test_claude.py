"""Claude Agent SDK: its own client over a scripted transport, in place of the program that it starts.

The real program needs the network, so these tests hold the protocol between it and the SDK: the hooks are registered,
called and answered by the SDK's code, and the events are checked against the SDK's types.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from adapters.frameworks.pages import run_page
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from claude_agent_sdk.types import (
    PermissionResultAllow,
    PermissionResultDeny,
    PostToolUseHookInput,
    PreToolUseHookInput,
    PreToolUseHookSpecificOutput,
    SyncHookJSONOutput,
    ToolPermissionContext,
)
from kit.patience import PATIENCE

from askfirst import Gate
from askfirst.adapters.claude import can_use_tool, claude_resumer, hooks
from askfirst.errors import ResumeFailed
from askfirst.workers import Worker

pytestmark = pytest.mark.anyio
SESSION = "3f0e6f54-0000-4000-8000-000000000001"
CALL: dict[str, Any] = {"id": "toolu_01", "name": "mcp__shop__charge", "input": {"cents": 5}}


def assert_fits(document: dict[str, Any], shape: Any) -> None:
    """A document has the fields that the SDK's type names, and no others."""
    assert shape.__required_keys__ <= set(document) <= shape.__required_keys__ | shape.__optional_keys__


class Program:
    """What the SDK starts, as a transport: it asks the hooks, runs the tool where they allow it, and ends."""

    def __init__(self, effects: list[Any], *, is_error: bool = False) -> None:
        self.effects = effects
        self.is_error = is_error
        self.hooks: dict[str, Any] = {}
        self.said: list[Any] = []
        self._out, self._in = anyio.create_memory_object_stream[dict[str, Any]](100)

    async def connect(self) -> None:
        return

    def is_ready(self) -> bool:
        return True

    async def close(self) -> None:
        await self._out.aclose()
        await self._in.aclose()

    async def end_input(self) -> None:
        return

    async def write(self, data: str) -> None:
        message = json.loads(data)
        if message["type"] == "control_request":
            self.hooks = message["request"].get("hooks") or {}
            ready = {"subtype": "success", "request_id": message["request_id"]}
            ready["response"] = {"hook_on_failure_supported": True, "hooks_registered": True}
            await self._out.send({"type": "control_response", "response": ready})
        elif message["type"] == "control_response":
            answer = message["response"]
            await self._next(answer.get("response") or {}, answer["request_id"])
        elif message["type"] == "user":
            await self._ask("PreToolUse", CALL["input"])

    async def _ask(self, kind: str, args: dict[str, Any], **more: Any) -> None:
        event = {
            "session_id": SESSION,
            "transcript_path": "/p/session.jsonl",
            "cwd": "/p",
            "hook_event_name": kind,
            "tool_name": CALL["name"],
            "tool_input": args,
            "tool_use_id": CALL["id"],
            **more,
        }
        types: dict[str, Any] = {"PreToolUse": PreToolUseHookInput, "PostToolUse": PostToolUseHookInput}
        assert_fits(event, types[kind])
        [matcher] = self.hooks[kind]
        request = {"subtype": "hook_callback", "callback_id": matcher["hookCallbackIds"][0], "input": event}
        request["tool_use_id"] = CALL["id"]
        await self._out.send({"type": "control_request", "request_id": kind, "request": request})

    async def _next(self, answer: dict[str, Any], request_id: str) -> None:
        assert_fits(answer, SyncHookJSONOutput)
        assert_fits(answer.get("hookSpecificOutput", {"hookEventName": ""}), PreToolUseHookSpecificOutput)
        self.said.append(answer)
        if request_id == "PostToolUse":
            await self._end("done")
            return
        said = answer["hookSpecificOutput"]
        if said["permissionDecision"] == "allow":
            args = said.get("updatedInput", CALL["input"])
            self.effects.append(args["cents"])
            await self._ask("PostToolUse", args, tool_response={"text": f"charged {args['cents']}"})
        elif said["permissionDecision"] == "defer":
            await self._end(None, stop_reason="tool_deferred", deferred_tool_use=CALL)
        else:
            await self._end(said["permissionDecisionReason"])

    async def _end(self, result: str | None, **more: Any) -> None:
        ended = {
            "type": "result",
            "subtype": "success",
            "duration_ms": 1,
            "duration_api_ms": 1,
            "is_error": self.is_error,
            "num_turns": 1,
            "session_id": SESSION,
            "result": result,
            **more,
        }
        await self._out.send(ended)
        await self._out.aclose()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for message in self._in:
            yield message


async def run(program: Program, options: ClaudeAgentOptions) -> ResultMessage:
    async def prompt() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "Charge 5 cents."}}

    ended = None
    with anyio.fail_after(PATIENCE):
        async for message in query(prompt=prompt(), options=options, transport=program):  # type: ignore[arg-type]
            if isinstance(message, ResultMessage):
                ended = message
    assert ended is not None
    return ended


async def test_ask_answer_and_go_on_by_a_worker_each_with_a_gate_of_its_own(store_url: str) -> None:
    effects: list[Any] = []
    async with Gate(store_url) as gate:
        for _ in range(2):  # the second comes before anybody has answered
            paused = await run(
                Program(effects),
                ClaudeAgentOptions(hooks=hooks(gate, "mcp__.*", wait=0, while_pending="defer")),
            )
            assert paused.deferred_tool_use is not None
            assert paused.deferred_tool_use.id == "toolu_01"
    async with Gate(store_url) as gate:
        await gate.answer(f"claude:{SESSION}:toolu_01", {"decision": "approve"}, by="ada")
    assert effects == []
    results: list[Any] = []
    async with Gate(store_url) as gate:
        options = ClaudeAgentOptions(hooks=hooks(gate, "mcp__.*", wait=0, while_pending="defer"))
        resume = claude_resumer(options, transport=lambda: Program(effects))

        async def resumer(continuation: Any) -> None:
            results.append(await resume(continuation))

        worker = Worker(gate._store, {"claude": resumer})  # pyright: ignore[reportPrivateUsage]
        assert await worker.run_due() == 1
        again = await run(Program(effects), options)
    assert effects == [5]
    assert results[0].result == "done"
    assert again.result is not None
    assert "ran before" in again.result
    assert "charged 5" in again.result


async def test_edited_arguments_run_and_the_model_is_told(store_url: str) -> None:
    effects: list[Any] = []
    async with Gate(store_url) as gate:
        options = ClaudeAgentOptions(hooks=hooks(gate, "mcp__.*", wait=0, while_pending="defer"))
        await run(Program(effects), options)
        await gate.answer(
            f"claude:{SESSION}:toolu_01", {"decision": "edit", "edited_args": {"cents": 3}}, by="ada"
        )
        program = Program(effects)
        await run(program, options)
    assert effects == [3]
    assert "a person changed the arguments" in program.said[0]["hookSpecificOutput"]["additionalContext"]


async def test_if_nobody_decides_the_call_is_denied_unless_deferring_is_asked_for(store_url: str) -> None:
    effects: list[Any] = []
    async with Gate(store_url) as gate:
        program = Program(effects)
        ended = await run(program, ClaudeAgentOptions(hooks=hooks(gate, wait=0.01)))
        assert await gate.pending() == []
    assert ended.deferred_tool_use is None
    assert "nobody decided in time" in (ended.result or "")
    assert effects == []


def test_a_hook_that_fails_blocks_and_has_time_to_wait() -> None:
    made = hooks(Gate("sqlite:///:memory:"), "Bash", wait=600)
    assert set(made) == {"PreToolUse", "PostToolUse", "PostToolUseFailure"}
    [before] = made["PreToolUse"]
    assert (before.matcher, before.on_failure) == ("Bash", "block")
    assert before.timeout is not None
    assert before.timeout > 600


async def test_can_use_tool_waits_in_place_and_gives_the_arguments_that_run(store_url: str) -> None:
    async with Gate(store_url) as gate:

        async def person(request: Any) -> None:
            await gate.answer(request, {"decision": "edit", "edited_args": {"cents": 3}}, by="ada")

        gate.on_opened(person)
        ask = can_use_tool(gate, ["charge"], session=SESSION)
        context = ToolPermissionContext(tool_use_id="toolu_02")
        allowed = await ask("charge", {"cents": 5}, context)
        assert isinstance(allowed, PermissionResultAllow)
        assert allowed.updated_input == {"cents": 3}
        after = hooks(gate)["PostToolUse"][0].hooks[0]
        event: Any = {
            "session_id": SESSION,
            "hook_event_name": "PostToolUse",
            "tool_name": "charge",
            "tool_input": {"cents": 3},
            "tool_response": "charged 3",
            "tool_use_id": "toolu_02",
        }
        assert await after(event, "toolu_02", {"signal": None}) == {}
        again = await ask("charge", {"cents": 5}, context)
        assert isinstance(again, PermissionResultDeny)
        assert "charged 3" in again.message
        other = await ask("delete", {}, context)
        assert isinstance(other, PermissionResultDeny)


async def test_a_session_that_fails_fails_its_continuation(store_url: str) -> None:
    async with Gate(store_url) as gate:
        options = ClaudeAgentOptions(hooks=hooks(gate, wait=0))
        resume = claude_resumer(lambda _: options, transport=lambda: Program([], is_error=True))
        continuation: Any = type("Continuation", (), {"thread_id": SESSION})()
        with pytest.raises(ResumeFailed, match="failed"):
            await resume(continuation)


async def test_the_page_runs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = await run_page("claude")
    assert page["options"].hooks["PreToolUse"][0].matcher == "Bash|mcp__.*"
    assert callable(page["resumers"]["claude"])
    await page["gate"].aclose()
