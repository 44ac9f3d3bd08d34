"""Putting a paused run on threads of a store, so that a checkpoint need only refer to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assent.agent.asking import is_about
from assent.agent.checkpoint import KeptEffect, KeptRequest, RunCheckpoint
from assent.agent.pausing import request_of
from assent.agent.people import MOOT
from assent.approvals import PendingApproval
from assent.checkpointer.base import Checkpointer, RunRecord, Settlement, Step, StoredEffect, StoredThread
from assent.errors import HitlStaleAnswer, InvalidCheckpoint, LeaseHeld, LeaseLost
from assent.ids import child_thread_id, new_id
from assent.messages import JsonObject, Message
from assent.requests import HitlRequest, StoredRequest, same_question, with_seal

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
            return
        except (LeaseLost, LeaseHeld, HitlStaleAnswer):
            if attempt == _ATTEMPTS - 1:
                raise


def _missing(
    thread: StoredThread | None, agent_id: str, run_id: str, part: _Part, asked: Sequence[HitlRequest]
) -> Step | None:
    have = [] if thread is None else thread.messages
    if have != part.messages[: len(have)]:
        raise InvalidCheckpoint([f"thread {part.thread_id!r} of this store holds another conversation"])
    known = {} if thread is None else thread.requests
    settled = [each for each in part.requests if _is_unsettled(known.get(each.question_id), each)]
    requests = (*asked, *(each.request for each in settled))
    opened = [each for each in requests if each.question_id not in known]
    if len(have) == len(part.messages) and not opened and not settled:
        return None
    new = part.messages[len(have) :]
    return Step(
        run_id,
        new,
        opened=opened,
        settled=[*map(_settlement, settled), *_moot(known.values(), new)],
        started=part.effects,
        run=RunRecord(agent_id),
        release=True,
        parent_thread_id=part.parent,
    )


def _is_unsettled(known: StoredRequest | None, settled: StoredRequest) -> bool:
    """Whether the store does not know yet that this was settled; of what is asked since under its id it does not."""
    if known is None:
        return True
    return known.status == "pending" and same_question(known.request, settled.request.payload)


def _moot(known: Iterable[StoredRequest], new: Sequence[Message]) -> list[Settlement]:
    """How the open requests end whose calls have their results in what is new."""
    resolved = [message.tool_call_id for message in new if message.role == "tool"]
    return [
        Settlement(each.question_id, "cancelled", MOOT)
        for each in known
        if each.status == "pending" and any(is_about(each.question_id, call_id) for call_id in resolved)
    ]


def _settlement(settled: StoredRequest) -> Settlement:
    """How a request was settled before, to be written down like that."""
    if settled.status == "pending":
        raise InvalidCheckpoint([f"request {settled.question_id!r} is listed as settled and is pending"])
    return Settlement(
        settled.question_id,
        settled.status,
        settled.reason,
        settled.answer,
        settled.answered_by,
        settled.via,
    )
