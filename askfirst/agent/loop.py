"""The loop: a fold over the transcript that asks the model for the next message."""

from __future__ import annotations

from collections.abc import Sequence

from askfirst import tracing
from askfirst.agent.channel_host import in_turn
from askfirst.agent.context import Asking
from askfirst.agent.effects import execute
from askfirst.agent.emitter import logger
from askfirst.agent.gate import put, settle
from askfirst.agent.question_ids import is_about
from askfirst.agent.run import Run
from askfirst.agent.spec import ModelCallContext
from askfirst.agent.thread import answers, is_finished, iterations, unresolved_calls
from askfirst.agent.verdicts import said_of
from askfirst.errors import HitlCancelled, HitlPaused, HitlTimedOut, ModelError
from askfirst.events import TurnEndedEvent, TurnStartedEvent
from askfirst.messages import AssistantMessage, ToolCall
from askfirst.models.base import ModelRequest
from askfirst.permissions.guardrails import judge_answer

# Asking the model for its next message.


async def ask_model(run: Run) -> AssistantMessage:
    """The model's next message. A failure is a message too, with ``stop_reason="error"`` and the reason."""
    if iterations(run.thread.messages) >= run.actor.spec.max_iterations:
        return _failure(
            f"the model was asked {run.actor.spec.max_iterations} times (max_iterations) and is not done"
        )
    spec = run.actor.spec
    request = ModelRequest(tuple(run.thread.messages), spec.instructions, spec.tool_schemas, spec.settings)
    await run.open_message()
    with tracing.model_span(spec.resolved_model.name) as span:
        try:
            if spec.onion.around_model:
                with Asking("gate", _place(run), ""):
                    message = await _hooked(run, request)
            else:
                message = await _stream(run, request)
        except ModelError as error:
            _fail(run, span, error)
            return _failure(str(error))
        except (HitlTimedOut, HitlCancelled) as signal:  # asked by a hook around the model
            _fail(run, span, signal)
            return _failure(said_of(signal))
        except Exception as error:
            logger.exception("model %s failed; the run ends here", spec.resolved_model.name)
            _fail(run, span, error)
            return _failure(f"{type(error).__name__}: {error}")
        if tracing.on:
            span.set("gen_ai.usage.input_tokens", message.usage.input_tokens)
            span.set("gen_ai.usage.output_tokens", message.usage.output_tokens)
            span.set("gen_ai.response.finish_reasons", [message.stop_reason])
    if spec.guardrails and not message.tool_calls:
        with Asking("gate", f"{_place(run)}-answer", ""):
            message = await _guarded(run, message)
    if run.thread.requests:
        await _cancel_moot(run)
    if message.stop_reason in ("error", "aborted"):  # its calls would never be run: drop them
        content = tuple(part for part in message.content if not isinstance(part, ToolCall))
        return message.model_copy(update={"content": content})
    return message


def _place(run: Run) -> str:
    """The place of a model call, from which question ids are made: the same in a resumed run."""
    return f"model-{len(run.thread.messages)}"


async def _cancel_moot(run: Run) -> None:
    """Cancel pending requests of this model call that were not asked again, and those of calls that have results."""
    resolved = [call.id for said in answers(run.thread.messages) for call in said.tool_calls]
    moot = (_place(run), f"{_place(run)}-answer", *resolved)
    await run.cancel_where(
        lambda asked: any(is_about(asked, about) for about in moot), "it was not asked again"
    )


async def _guarded(run: Run, message: AssistantMessage) -> AssistantMessage:
    """An answer without tool calls, if the guardrails allow it; the gate asks them about answers with calls.

    If a guardrail wants a person's approval, it is asked for through the channel; without a channel the answer is
    refused.
    """
    objection = await judge_answer(message, run.actor.spec.guardrails)
    if objection is None:
        return message
    why = objection.reason or "it is not allowed"
    channel = run.channel
    if objection.verdict == "ask" and channel is not None:
        details = {"answer": message.text, "reason": why}
        if await in_turn(
            channel, lambda: channel.confirm("May the agent give this answer?", details=details)
        ):
            return message
        why = "a person did not allow it"
    return _failure(f"the model's answer was held back: {why}")


async def _hooked(run: Run, request: ModelRequest) -> AssistantMessage:
    onion = run.actor.spec.onion
    ctx = ModelCallContext(request, run.thread.thread_id, run.run_id, run.stop.event)
    ctx = await onion.before_model(ctx)
    return await onion.after_model(ctx, await _stream(run, ctx.request))


async def _stream(run: Run, request: ModelRequest) -> AssistantMessage:
    final: AssistantMessage | None = None
    model = run.actor.spec.resolved_model
    stream = model.stream(request)
    try:
        async for item in stream:
            if isinstance(item, AssistantMessage):
                final = item
            else:
                await run.hear(item)
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:  # close the provider's stream now, not at garbage collection
            await close()
    if final is None:
        raise ModelError(f"model {model.name} ended its stream without a message")
    return final


def _fail(run: Run, span: tracing.Span, error: BaseException) -> None:
    run.reply.error_type = type(error).__name__
    span.fail(run.reply.error_type)


def _failure(why: str) -> AssistantMessage:
    return AssistantMessage((), stop_reason="error", error=why)


async def advance(run: Run) -> None:
    """Advance a thread until nothing is left to do, or until the run is aborted.

    The next action is read from the transcript each time. Calls without a result are settled (all of them, before
    any starts) and executed. If there are none, the model is asked. When the model calls nothing, or fails, the run
    ends. The loop keeps no state, so it can stop anywhere and be resumed in another process from the transcript
    alone.
    """
    while not (run.stop.is_asked or is_finished(run.thread.messages)):
        if not tracing.on:
            if not await _turn(run):
                return
            continue
        with tracing.turn_span() as span:
            if not await _turn(run):
                span.fail(run.reply.error_type)
                return


async def _turn(run: Run) -> bool:
    """Settle and execute the calls without a result; where there are none, ask the model first.

    False if the model failed.
    """
    has_failed = False
    if run.emitter.listening:
        await run.emit(TurnStartedEvent)
    calls = unresolved_calls(run.thread.messages)
    if not calls:
        message = await ask_model(run)
        await run.append(message)
        has_failed = message.stop_reason == "error"
        calls = unresolved_calls(run.thread.messages)  # with the ids that they got in the transcript
    if calls:
        await _resolve(run, calls)
    if run.emitter.listening:
        await run.emit(TurnEndedEvent)
    return not has_failed


async def _resolve(run: Run, calls: Sequence[ToolCall]) -> None:
    """Settle calls and run the admitted ones; raises `HitlPaused` if a call waits for a person without a channel.

    By default no call starts before all are settled. With ``tool_gate="each"`` settled calls start while the others
    wait.
    """
    apart = run.actor.spec.tool_gate == "each"
    for group in [[call] for call in calls] if apart and run.channel is not None else [calls]:
        settled, waiting = await settle(run, group)
        if waiting:
            await put(run, waiting, release=not apart)
            if not apart:
                raise HitlPaused
        await execute(run, settled)
        if waiting:
            raise HitlPaused
