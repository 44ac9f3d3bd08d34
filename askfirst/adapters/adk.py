"""Google ADK: the gate before an app's tools as a plugin, and a resumer for workers.

The plugin asks ADK for a confirmation while a person decides. The answer to that confirmation decides nothing: the
gate reads the decision from its store. An early, repeated or forged answer is removed, and the call still waits.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (ADK is installed in the environment of this adapter's tests only)

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from pydantic_core import to_jsonable_python

from askfirst.adapters.adk_confirmations import CONFIRMATION, OURS, open_confirmations
from askfirst.adapters.framework import instance_from, needs
from askfirst.adapters.gated_call import Done, GatedCall, GatedTools, NotRun, Start, ToolsGiven, with_defaults
from askfirst.errors import Pending, ResumeFailed
from askfirst.gate.gate import Gate
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

with needs("adk"):
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.runners import Runner
    from google.genai import types

RESUMER = "adk"
"""The name under which a worker knows `adk_resumer`, unless another is given."""


class AskfirstPlugin(BasePlugin):
    """The gate before the tools of an app: ``App(…, plugins=[AskfirstPlugin(gate)])``.

    ``tools`` are the names of the tools that a person decides on, or a mapping from names to options of
    `Gate.guarded`. The gate's policy decides on all other tools. Without ``tools`` and without a policy, a person
    decides on every call. Make this plugin the first: if an earlier plugin replaces a result, ADK does not tell the
    later ones that the tool ended.
    """

    def __init__(
        self, gate: Gate, tools: ToolsGiven = None, *, resumer: str = RESUMER, name: str = "askfirst"
    ) -> None:
        super().__init__(name=name)
        self._gated = GatedTools.of(gate, "adk", tools, resumer)
        self._waits: dict[str, list[str]] = {}
        """By the id of the invocation that a message continues: the tools whose calls still wait for a person."""
        self._entered: dict[tuple[str, str], tuple[GatedCall, Start | Done | NotRun]] = {}
        """By invocation and call id: confirmed calls that entered the gate before the run started."""
        self._running: dict[tuple[str, str], tuple[GatedCall, Start]] = {}

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> Any:
        """Put to the gate the calls that a message confirms, and remove confirmations of calls that still wait."""
        session, invocation = invocation_context.session, invocation_context.invocation_id
        parts = user_message.parts or []
        given = {it.function_response.id for it in parts if it.function_response}
        asked = sorted(open_confirmations(session.events))  # the same order everywhere avoids deadlocks
        if given.isdisjoint(it.id for it in asked):
            return None
        waits = self._waits[invocation] = []
        for it in asked:
            call = self._call(it.tool, it.args, None, session, it.call_id)
            if it.id not in given or isinstance(entered := await call.enter(), Pending):
                waits.append(it.tool)
                given.discard(it.id)
            else:
                self._entered[invocation, it.call_id] = call, entered
        left = [it for it in parts if not it.function_response or it.function_response.id in given]
        return types.Content(role="user", parts=left) if left else None

    async def before_run_callback(self, *, invocation_context: Any) -> Any:
        """End a run at once if all calls that it would continue still wait for a person."""
        invocation = invocation_context.invocation_id
        waits = self._waits.get(invocation)
        if not waits or any(it[0] == invocation for it in self._entered):
            return None
        text = f"A person has to decide first: {', '.join(waits)}."
        return types.Content(role="model", parts=[types.Part(text=text)])

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        """Put a call to the gate: None lets it run, anything else is its result."""
        if not self._gated.has(tool.name):
            return None
        here = invocation, call_id = tool_context.invocation_id, tool_context.function_call_id
        call = self._call(tool.name, tool_args, tool, tool_context.session, call_id, invocation)
        known = self._entered.get(here)
        if known is not None and known[0].action.digest == call.action.digest:
            entered = self._entered.pop(here)[1]
        else:
            entered = await call.enter()
        if self._waits.get(invocation):  # the model goes on when all calls are decided
            tool_context.actions.skip_summarization = True
        match entered:
            case Start(args):
                self._running[here] = call, entered
                tool_args.clear()
                tool_args.update(args)
                return None
            case Pending():
                ours = {OURS: {"case": entered.case, "key": entered.key, "args": call.action.args}}
                hint = entered.link or f"A person decides on case {entered.case}."
                tool_context.request_confirmation(hint=hint, payload=ours)
                tool_context.actions.skip_summarization = True
                return {"error": f"{tool.name} waits for a person. Do not call it again."}
            case NotRun(text):
                return {"error": text}
            case Done(value, note):
                return _with_note(value, note)

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> Any:
        """Record a body's result, or that the body stopped to wait for a confirmation or a login of its own."""
        actions, call_id = tool_context.actions, tool_context.function_call_id
        call, start = self._running.pop((tool_context.invocation_id, call_id), (None, None))
        if call is None or start is None:
            return None
        if call_id in actions.requested_tool_confirmations or call_id in actions.requested_auth_configs:
            await self._release_unused(call, start)
            return None
        await call.finish(start, to_jsonable_python(result, fallback=str))
        return None if start.note is None else _with_note(result, start.note)

    async def on_tool_error_callback(self, *, tool_context: Any, error: BaseException, **_: Any) -> None:
        """Record that a body raised, or was cancelled."""
        here = tool_context.invocation_id, tool_context.function_call_id
        if (running := self._running.pop(here, None)) is not None:
            await running[0].stop(running[1], error)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """Release the calls that are left at the end of a run."""
        invocation = invocation_context.invocation_id
        self._waits.pop(invocation, None)
        for here in [it for it in self._entered if it[0] == invocation]:  # ADK did not start the body
            await self._release_unused(*self._entered.pop(here))
        for here in [it for it in self._running if it[0] == invocation]:  # ADK did not report its end
            call, start = self._running.pop(here)
            await call.abandon(start)

    async def on_run_error_callback(self, *, invocation_context: Any, error: Exception) -> None:
        """Release the calls that are left after a run that failed."""
        await self.after_run_callback(invocation_context=invocation_context)

    async def _release_unused(self, call: GatedCall, entered: Start | Done | NotRun) -> None:
        """Release the grant of a call whose body has not begun, so that a later run can begin it."""
        if isinstance(entered, Start) and entered.is_recorded:
            await self._gated.gate.pause(call.key)

    def _call(
        self, name: str, args: dict[str, Any], tool: Any, session: Any, call_id: str, invocation: str = ""
    ) -> GatedCall:
        declared = None if tool is None else tool._get_declaration()
        schema = None if declared is None else declared.parameters_json_schema
        for event in session.events:
            if any(it.id == call_id for it in event.get_function_calls()):
                invocation = event.invocation_id
        thread = "/".join(quote(it, safe="") for it in (session.app_name, session.user_id, session.id))
        return self._gated.call(
            name, with_defaults(args, schema), thread=thread, call_id=f"{invocation}:{call_id}", schema=schema
        )


def adk_resumer(runner: Any) -> Resumer:
    """A resumer that continues a session when people have decided.

    ``runner`` is the `Runner` with its plugin, or a function (sync or async) that returns it.
    """

    async def resume(continuation: Continuation) -> Any:
        runs: Any = await instance_from(runner, Runner)
        app, user, session_id = (unquote(it) for it in continuation.thread_id.split("/"))
        session = await runs.session_service.get_session(app_name=app, user_id=user, session_id=session_id)
        if session is None:
            raise ResumeFailed(f"the runner's session service has no session {session_id!r} of {user!r}")
        yes: Any = {"name": CONFIRMATION, "response": {"confirmed": True}}
        asked = [{"id": it.id, **yes} for it in open_confirmations(session.events)]
        parts = [types.Part(function_response=it) for it in asked]
        how: dict[str, Any] = {"new_message": types.Content(role="user", parts=parts)}
        if not parts:
            last = [it for it in session.events if it.content][-1]  # events without content report errors
            if last.author == "user" or (last.is_final_response() and not last.get_function_calls()):
                return []
            if last.get_function_calls() and not getattr(runs.resumability_config, "is_resumable", False):
                raise ResumeFailed(
                    "the process died before the run paused, and the app has no ResumabilityConfig"
                )
            # A process died before the run paused, or before the model was called with the results.
            how = {"invocation_id": last.invocation_id}
        return [it async for it in runs.run_async(user_id=user, session_id=session_id, **how)]

    return resume


def _with_note(result: Any, note: str | None) -> dict[str, Any]:
    """A result as ADK's dictionary, with the note for the model before it."""
    whole: dict[str, Any] = dict(result) if isinstance(result, dict) else {"result": result}
    return whole if note is None else {"note": note, **whole}
