"""A2A: a task that waits for people at the gate is ``input-required``, and its client's next message may answer.

`gated` wraps your agent's executor. A client is often an agent itself. So a message answers a request only if the
request is open, if it was shown in this task, and if the host allows the authenticated user to answer it.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (the SDK is installed in the environment of this adapter's tests only)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from askfirst.adapters.framework import needs
from askfirst.adapters.response_schemas import response_schema
from askfirst.adapters.shown_requests import ABANDONED, Shown, ShownRequests, logger
from askfirst.errors import HitlInvalidAnswer, Pending
from askfirst.gate.gate import Gate
from askfirst.requests import StoredRequest

with needs("a2a"):
    from a2a.helpers.proto_helpers import get_data_parts, new_data_part, new_text_part
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.events import EventQueue
    from a2a.server.tasks import TaskUpdater

PROTOCOL = "a2a"
"""The ``via`` of answers that come through A2A."""
DATA = "askfirst"
"""The field of a data part that holds requests, or answers to them."""
_SAFE = 2**53
"""The smallest size at which A2A may round whole numbers: it transfers every number as a double."""


MayAnswer = Callable[[str, StoredRequest], bool]
"""A function that says whether a user, by the name that the server authenticated, may answer a request."""


def gated(gate: Gate, executor: AgentExecutor, *, may_answer: MayAnswer | None = None) -> AgentExecutor:
    """An executor whose tasks wait for people: ``DefaultRequestHandler(agent_executor=gated(gate, executor), …)``.

    If the executor raises `Pending`, the task becomes ``input-required``, with the request as a text and as data.
    The next message of the task runs the executor again, if no request of the task is open any more. So the gated
    calls of the executor need stable keys, such as ``f"a2a:{context.task_id}:refund"``. Without ``may_answer``
    messages answer nothing: people answer on the gate's pages and in its messengers.
    """
    return _GatedExecutor(gate, executor, may_answer)


class _GatedExecutor(AgentExecutor):
    def __init__(self, gate: Gate, executor: AgentExecutor, may_answer: MayAnswer | None) -> None:
        self._executor = executor
        self._may_answer = may_answer
        self._requests = ShownRequests(gate, PROTOCOL)

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Settle the requests that the message answers, then run the executor unless a request is still open."""
        task_id, updater = str(context.task_id), _updater(context, event_queue)
        problem = None if context.current_task is None else await self._answered(task_id, context)
        still_open = [] if context.current_task is None else await self._requests.open(task_id)
        if still_open:
            await updater.requires_input(_asked(updater, still_open, problem))
            return
        try:
            await self._executor.execute(context, event_queue)
        except Pending as pending:
            shown = await self._requests.show(task_id, [pending])
            await updater.requires_input(_asked(updater, shown, None))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel the task's open requests, then let the executor cancel the task."""
        task_id = str(context.task_id)
        cases = {it.case: ABANDONED for it in await self._requests.open(task_id)}
        if cases:
            await self._requests.settle(
                task_id, cases, by=_user(context) or "the client that cancelled the task"
            )
        await self._executor.cancel(context, event_queue)

    async def _answered(self, task_id: str, context: RequestContext) -> str | None:
        """Settle the requests that a message answers; returns why that failed, or None."""
        answers = _answers(context)
        if not answers:
            return None
        by, may = _user(context), self._may_answer
        asked = [it.stored for it in await self._requests.open(task_id) if it.case in answers]
        if by is None or may is None or not all(may(by, it) for it in asked):
            logger.warning("a2a: a message answers a request that its sender may not answer; it was ignored")
            return "Nothing was answered: you may not decide this."
        try:
            await self._requests.settle(task_id, answers, by=by)
        except HitlInvalidAnswer as error:
            return f"Nothing was answered: {error}"
        return None


def _updater(context: RequestContext, event_queue: EventQueue) -> TaskUpdater:
    return TaskUpdater(event_queue, str(context.task_id), str(context.context_id))


def _user(context: RequestContext) -> str | None:
    """The authenticated sender of the message; None if there is none. Names inside the message are not trusted."""
    user = context.call_context.user
    return user.user_name if user.is_authenticated and user.user_name else None


def _answers(context: RequestContext) -> dict[str, Any]:
    """The answers in a message's data parts, by case id."""
    found: dict[str, Any] = {}
    for data in [] if context.message is None else get_data_parts(context.message.parts):
        ours: Any = data.get(DATA) if isinstance(data, Mapping) else None
        answers: Any = ours.get("answers") if isinstance(ours, Mapping) else None
        if isinstance(answers, Mapping):
            found |= {case: _restore_integers(it) for case, it in cast("Mapping[str, Any]", answers).items()}
    return found


def _asked(updater: TaskUpdater, shown: Sequence[Shown], problem: str | None) -> Any:
    """The agent's message that asks: each request as a line of text, and all of them as data."""
    lines = [] if problem is None else [problem]
    for it in shown:
        where = "" if it.link is None else f" (or decide at {it.link})"
        lines.append(f"{it.message}{where}")
    requests = [
        {**it.facts, "message": it.message, "responseSchema": response_schema(it.stored.request)}
        for it in shown
    ]
    return updater.new_agent_message(
        [new_text_part("\n".join(lines)), new_data_part(_large_as_text({DATA: {"requests": requests}}))]
    )


def _restore_integers(value: Any) -> Any:
    """JSON from an A2A data part, in which every number is a double: whole numbers become integers again."""
    if isinstance(value, Mapping):
        return {name: _restore_integers(it) for name, it in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_restore_integers(it) for it in cast("list[Any]", value)]
    if not isinstance(value, float) or not value.is_integer():
        return value
    # A larger number may have been rounded, so it becomes a text, which the tool's schema refuses as a number.
    return int(value) if abs(value) < _SAFE else str(value)


def _large_as_text(value: Any) -> Any:
    """JSON for an A2A data part: whole numbers that a double cannot hold become texts, so that none is rounded."""
    if isinstance(value, Mapping):
        return {name: _large_as_text(it) for name, it in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_large_as_text(it) for it in cast("list[Any]", value)]
    return str(value) if type(value) is int and abs(value) >= _SAFE else value
