"""CrewAI Flows: a provider of human feedback that asks through the gate, gated effects, and a resumer for workers.

CrewAI resumes a flow with whatever text it is given. So both the resumer and the method with the effect read the
decision from the store: an early, repeated or forged resume pauses the flow again.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (CrewAI is installed in the environment of this adapter's tests only)

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from pydantic_core import to_jsonable_python

from askfirst.adapters.framework import needs
from askfirst.adapters.gated_call import Codec, GatedCall, GatedTools, NotRun
from askfirst.errors import Denied, HitlError, Pending
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Approved, Refused
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

with needs("crewai"):
    from crewai.flow.async_feedback.types import HumanFeedbackPending, PendingFeedbackContext
    from crewai.flow.persistence.base import FlowPersistence
    from crewai.flow.persistence.factory import default_flow_persistence

RESUMER = "crewai"
"""The name under which a worker knows `crewai_resumer`, unless another is given."""
_OURS = "askfirst"
"""The field of a feedback's metadata that the gate reads."""


class AskfirstFeedback:
    """Asks people through the gate: ``@human_feedback(message="…", provider=AskfirstFeedback(gate))``.

    A person approves, edits or denies what the method returned. With ``emit``, an approval leads to the first outcome
    and a denial to the last; no model interprets the answer. ``options`` are those of `Gate.guarded`. The gate has
    to be made with its store's URL, because CrewAI calls a provider in a separate thread.
    """

    def __init__(self, gate: Gate, *, resumer: str = RESUMER, **options: Any) -> None:
        self.gate = gate
        self._options, self._resumer = options, resumer

    def request_feedback(self, context: Any, flow: Any) -> NoReturn:
        """Store the flow, have a person asked, and pause the flow; CrewAI calls this."""
        if context.emit and len(context.emit) < 2:
            raise HitlError("the gate needs two outcomes in emit: first for an approval, last for a denial")
        args = {"output": to_jsonable_python(context.method_output, fallback=str)}
        stored = {**context.to_dict(), "method_output": args["output"], "metadata": {}}
        asked = replace(context, metadata={**context.metadata, _OURS: {"context": stored}})
        if flow.persistence is None:
            flow.persistence = default_flow_persistence()
        flow.persistence.save_pending_feedback(asked.flow_id, asked, to_jsonable_python(flow.state))
        decided = self.gate.portal.run(lambda gate: self._call(stored, gate).decided())
        if isinstance(decided, NotRun):
            raise Denied(self._call(stored).key, decided.text)
        waits = self.gate.portal.run(lambda gate: gate.waiting(self._call(stored).key))
        self._pause(asked, waits)

    def effect(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Put a listener behind the gate: it runs only if the feedback that it is given was approved, and only once.

        ``@listen("yes") @feedback.effect def pay(self, feedback): …``. ``feedback.output`` is what was approved, with
        the person's edits. One approval permits one effect.
        """

        @functools.wraps(method)
        def run(flow: Any, feedback: Any) -> Any:
            ours = getattr(feedback, "metadata", {}).get(_OURS)
            if ours is None:
                raise HitlError(
                    f"{method.__name__} was not run: it was given feedback that does not come from the gate"
                )

            def body(start: Any) -> Any:
                result = method(flow, replace(feedback, output=start.args["output"]))
                return asyncio.run(result) if inspect.iscoroutine(result) else result

            codec: Codec[Any] = Codec(
                lambda value: {"of": method.__name__, "value": to_jsonable_python(value, fallback=str)},
                lambda kept: _own_result(method.__name__, kept),
            )
            outcome = self._call(ours["context"]).run_sync(body, codec)
            if isinstance(outcome, Pending):
                context = _AskedContext.from_dict({**ours["context"], "metadata": {_OURS: ours}})
                self._pause(context, outcome)
            if isinstance(outcome, NotRun):
                raise Denied(self._call(ours["context"]).key, outcome.text)
            return outcome.result[0]

        return run

    async def decide(self, context: Any) -> str | None:
        """Write the decision into a paused flow's context; returns the text to resume it with, None while pending."""
        asked = context.metadata[_OURS]["context"]
        await self.gate.ready()
        verdict = await self.gate.decision(self._call(asked).key)
        if verdict is None:
            return None
        said: dict[str, Any] = {"by": verdict.by}
        match verdict:
            case Approved(args, _, is_edited):
                context.method_output, text = args["output"], "approved"
                said |= {"decision": "approve", "is_edited": is_edited}
            case Refused(reason):
                text = f"denied: {reason}"
                said |= {"decision": "deny", "reason": reason}
        context.metadata[_OURS] = {**context.metadata[_OURS], **said}
        if not context.emit:
            return text
        context.default_outcome = context.emit[0] if isinstance(verdict, Approved) else context.emit[-1]
        return ""  # for an empty text CrewAI takes the default outcome; for any other it asks a model

    def _call(self, asked: dict[str, Any], gate: Gate | None = None) -> GatedCall:
        name, options = asked["method_name"], {"title": asked["message"] or None, **self._options}
        tools = {name: {it: value for it, value in options.items() if value is not None}}
        gated = GatedTools.of(gate or self.gate, "crewai", tools, self._resumer)
        call_id = f"{name}:{asked['requested_at']}"
        return gated.call(name, {"output": asked["method_output"]}, thread=asked["flow_id"], call_id=call_id)

    def _pause(self, context: Any, waits: Pending | None) -> NoReturn:
        info = {} if waits is None else {"case": waits.case, "key": waits.key, "link": waits.link}
        raise HumanFeedbackPending(context=context, callback_info=info)


class _AskedContext(PendingFeedbackContext):
    """A context that keeps the ``method_name`` that asked, after which CrewAI resumes, also if an effect pauses."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "method_name" or not hasattr(self, name):
            super().__setattr__(name, value)


class _KeepsFeedback(FlowPersistence):
    """A wrapper around the flow's persistence. CrewAI deletes a pending feedback when it resumes the flow; the
    wrapper does not, so that after a crash the flow can be resumed again."""

    persistence_type: str = "askfirst"
    kept: Any

    def init_db(self) -> None:
        self.kept.init_db()

    def save_state(self, flow_uuid: str, method_name: str, state_data: Any) -> None:
        self.kept.save_state(flow_uuid, method_name, state_data)

    def load_state(self, flow_uuid: str) -> Any:
        return self.kept.load_state(flow_uuid)

    def save_pending_feedback(self, flow_uuid: str, context: Any, state_data: Any) -> None:
        self.kept.save_pending_feedback(flow_uuid, context, state_data)

    def load_pending_feedback(self, flow_uuid: str) -> Any:
        return self.kept.load_pending_feedback(flow_uuid)


def crewai_resumer(flow: Any, feedback: AskfirstFeedback, persistence: Any = None, **options: Any) -> Resumer:
    """A resumer that continues a flow when people have decided.

    ``flow`` is the class of the flow, ``feedback`` its provider; ``persistence`` and further options are those of
    ``from_pending``. After a crash, a flow continues from its feedback, so its listeners may run again.
    """

    async def resume(continuation: Continuation) -> Any:
        flow_id = continuation.thread_id
        held = _KeepsFeedback(kept=persistence or default_flow_persistence())
        if held.load_pending_feedback(flow_id) is None:
            return None  # another process has already continued the flow
        paused = flow.from_pending(flow_id, held, **options)
        if _OURS not in paused.pending_feedback.metadata:
            return None  # it waits for feedback of another provider
        text = await feedback.decide(paused.pending_feedback)
        if text is None:
            return None
        try:
            result = await paused.resume_async(text)
        except Denied as denied:  # the effect will never run, so the flow has ended
            result = denied
        if not isinstance(result, HumanFeedbackPending):
            held.kept.clear_pending_feedback(flow_id)
        return result

    return resume


def _own_result(name: str, kept: Any) -> Any:
    if kept["of"] != name:
        raise HitlError(f"{name} was not run: the approval was used for {kept['of']}, and permits one effect")
    return kept["value"]
