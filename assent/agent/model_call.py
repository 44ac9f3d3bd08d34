"""Asking the model for its next message."""

from __future__ import annotations

from assent import tracing
from assent.agent.asking import asking_from, is_about
from assent.agent.emitter import logger
from assent.agent.fold import answers, iterations
from assent.agent.middleware import ModelCallContext
from assent.agent.run import Run
from assent.agent.turns import in_turn
from assent.agent.verdict import said_of
from assent.errors import HitlCancelled, HitlTimedOut, ModelError
from assent.messages import AssistantMessage, ToolCall
from assent.models.base import ModelRequest
from assent.permissions.guardrails import judge_answer


async def ask_model(run: Run) -> AssistantMessage:
    """The model's next message. A failure is a message too, with ``stop_reason="error"`` and the reason."""
    if iterations(run.messages) >= run.spec.max_iterations:
        return _failure(
            f"the model was asked {run.spec.max_iterations} times (max_iterations) and is not done"
        )
    spec = run.spec
    request = ModelRequest(tuple(run.messages), spec.instructions, spec.tool_schemas, spec.settings)
    await run.open_message()
    with tracing.model_span(spec.resolved_model.name) as span:
        try:
            if spec.onion.around_model:
                with asking_from("gate", _place(run), ""):
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
        if tracing.is_on():
            span.set("gen_ai.usage.input_tokens", message.usage.input_tokens)
            span.set("gen_ai.usage.output_tokens", message.usage.output_tokens)
            span.set("gen_ai.response.finish_reasons", [message.stop_reason])
    if spec.guardrails and not message.tool_calls:
        with asking_from("gate", f"{_place(run)}-answer", ""):
            message = await _guarded(run, message)
    if run.thread.requests:
        await _withdraw_moot(run)
    if message.stop_reason in ("error", "aborted"):  # such a message resolves nothing, so it may call nothing
        content = tuple(part for part in message.content if not isinstance(part, ToolCall))
        return message.model_copy(update={"content": content})
    return message


def _place(run: Run) -> str:
    """Where a resumed run asks again, under the same id."""
    return f"model-{len(run.messages)}"


async def _withdraw_moot(run: Run) -> None:
    """End what was asked here before and was not asked again, and what is asked about calls that have a result."""
    resolved = [call.id for said in answers(run.messages) for call in said.tool_calls]
    moot = (_place(run), f"{_place(run)}-answer", *resolved)
    await run.withdraw_where(
        lambda asked: any(is_about(asked, about) for about in moot), "it was not asked again"
    )


async def _guarded(run: Run, message: AssistantMessage) -> AssistantMessage:
    """An answer that calls nothing, if the guardrails let it pass; the gate puts those that call to them.

    A guardrail that wants a person's approval gets it through the channel; without one the answer is refused.
    """
    objection = await judge_answer(message, run.spec.guardrails)
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
    onion = run.spec.onion
    ctx = ModelCallContext(request, run.thread.thread_id, run.run_id, run.signal)
    ctx = await onion.before_model(ctx)
    return await onion.after_model(ctx, await _stream(run, ctx.request))


async def _stream(run: Run, request: ModelRequest) -> AssistantMessage:
    final: AssistantMessage | None = None
    model = run.spec.resolved_model
    stream = model.stream(request)
    try:
        async for item in stream:
            if isinstance(item, AssistantMessage):
                final = item
            else:
                await run.hear(item)
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:  # stop asking the provider now, not when it is collected
            await close()
    if final is None:
        raise ModelError(f"model {model.name} ended its stream without a message")
    return final


def _fail(run: Run, span: tracing.Span, error: BaseException) -> None:
    run.error_type = type(error).__name__
    span.fail(run.error_type)


def _failure(why: str) -> AssistantMessage:
    return AssistantMessage((), stop_reason="error", error=why)
