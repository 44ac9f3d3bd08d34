"""Putting a paused run on threads of a store, so that a checkpoint need only refer to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from assent.agent.checkpoint import KeptEffect, KeptRequest, RunCheckpoint
from assent.agent.pausing import request_of
from assent.approvals import PendingApproval
from assent.checkpointer.base import Checkpointer, RunRecord, Settlement, Step, StoredEffect, StoredThread
from assent.errors import HitlStaleAnswer, InvalidCheckpoint, LeaseHeld, LeaseLost
from assent.ids import child_thread_id, new_id
from assent.messages import JsonObject, Message
from assent.requests import HitlRequest, StoredRequest, with_seal

_ATTEMPTS = 5


async def import_checkpoint(memory: Checkpointer, agent_id: str, checkpoint: RunCheckpoint) -> JsonObject:
    """See to it that a checkpoint's messages are on threads, and return it as a body that refers to those.

    Messages that are there already are not written again, so a run is stored once however often it pauses.
    """
    run_id = checkpoint.run_id or new_id()
    root = checkpoint.thread_id or run_id
    threads: dict[tuple[str, ...], str] = {(): root}
    places = [_place(root, checkpoint.root_messages)]
    parts: list[_Part] = [
        _Part(root, None, checkpoint.root_messages, checkpoint.root_requests, checkpoint.root_effects, ())
    ]
    for kept in sorted(checkpoint.subagent_sessions, key=lambda each: len(each.call_path)):
        parent = threads.get(kept.call_path[:-1])
        if parent is None:
            raise InvalidCheckpoint([f"the caller of the subagent {kept.spec_id!r} is not in the checkpoint"])
        thread_id = child_thread_id(parent, kept.call_path[-1])
        threads[kept.call_path] = thread_id
        parts.append(_Part(thread_id, parent, kept.messages, kept.requests, kept.effects, kept.call_path))
    for part in parts:
        if checkpoint.stored:
            await _check_stored(memory, part)
        else:
            await _store(memory, agent_id, run_id, part, checkpoint.pending, checkpoint.seals or {})
    sessions: list[Any] = [
        _place(threads[each.call_path], each.messages) for each in checkpoint.subagent_sessions
    ]
    return {"checkpoint": _without_messages(checkpoint, root), "root": places[0], "sessions": sessions}


class _Part:
    """One thread's worth of a checkpoint."""

    def __init__(
        self,
        thread_id: str,
        parent: str | None,
        messages: Sequence[Message],
        requests: Sequence[KeptRequest],
        effects: Sequence[KeptEffect],
        call_path: tuple[str, ...],
    ) -> None:
        self.thread_id = thread_id
        self.parent = parent
        self.messages = list(messages)
        self.requests = [kept.stored(thread_id) for kept in requests]
        self.effects = [
            StoredEffect(it.tool_call_id, it.tool_name, it.digest, it.effect, it.attempt) for it in effects
        ]
        self.call_path = call_path


def _place(thread_id: str, messages: Sequence[Message]) -> JsonObject:
    return {"thread_id": thread_id, "upto": len(messages)}


def _without_messages(checkpoint: RunCheckpoint, thread_id: str) -> JsonObject:
    sessions = {"__all__": {"messages"}}
    plain: dict[str, Any] = checkpoint.model_dump(
        mode="json", exclude={"root_messages": True, "subagent_sessions": sessions}, exclude_none=True
    )
    return {**plain, "thread_id": thread_id, "stored": True}


async def _check_stored(memory: Checkpointer, part: _Part) -> None:
    thread = await memory.load(part.thread_id)
    if thread is None or thread.messages[: len(part.messages)] != part.messages:
        raise InvalidCheckpoint(
            [f"the run is kept in another store: this one does not have {part.thread_id!r}"]
        )


async def _store(
    memory: Checkpointer,
    agent_id: str,
    run_id: str,
    part: _Part,
    pending: Sequence[PendingApproval],
    seals: Mapping[str, str],
) -> None:
    """Bring a thread up to where the checkpoint is: what is missing at its end, and what is asked there."""
    attempts = {effect.tool_call_id: effect.attempt for effect in part.effects}
    asked = [
        with_seal(request_of(each, part.thread_id, attempts.get(each.tool_call.id, 1)), seals.get(each.id))
        for each in pending
        if each.call_path == part.call_path
    ]
    for attempt in range(_ATTEMPTS):
        thread = await memory.load(part.thread_id)
        step = _missing(thread, agent_id, run_id, part, asked)
        if step is None:
            return
        try:
            fence = 0 if thread is None else thread.fence
            await memory.commit(part.thread_id, step, fence=fence, acquire=True)
            break
        except (LeaseLost, LeaseHeld):
            if attempt == _ATTEMPTS - 1:
                raise
    for answered in part.requests:
        await _settle(memory, run_id, answered)


def _missing(
    thread: StoredThread | None, agent_id: str, run_id: str, part: _Part, asked: Sequence[HitlRequest]
) -> Step | None:
    have = [] if thread is None else thread.messages
    if have != part.messages[: len(have)]:
        raise InvalidCheckpoint([f"thread {part.thread_id!r} of this store holds another conversation"])
    known = {} if thread is None else thread.requests
    answered = [each.request for each in part.requests]
    opened = [each for each in (*asked, *answered) if each.question_id not in known]
    if len(have) == len(part.messages) and not opened:
        return None
    return Step(
        run_id,
        part.messages[len(have) :],
        opened=opened,
        started=part.effects,
        run=RunRecord(agent_id),
        release=True,
        parent_thread_id=part.parent,
    )


async def _settle(memory: Checkpointer, run_id: str, answered: StoredRequest) -> None:
    """Settle a request as it was settled before; nothing to do if it was when an earlier checkpoint was saved."""
    thread_id, question_id = answered.thread_id, answered.question_id
    who = {"by": answered.answered_by, "via": answered.via}
    with suppress(HitlStaleAnswer):
        if answered.status == "answered":
            await memory.settle(thread_id, question_id, answered.answer, **who)
        elif answered.status in ("superseded", "aborted"):
            ended = Settlement(question_id, answered.status, answered.reason)
            thread = await memory.load(thread_id)
            fence = 0 if thread is None else thread.fence
            step = Step(run_id, [], settled=[ended], release=True)
            await memory.commit(thread_id, step, fence=fence, acquire=True)
        else:
            await memory.cancel(thread_id, question_id, answered.reason or answered.status, **who)
