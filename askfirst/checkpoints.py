"""Paused runs kept in a store: saved, claimed by one worker at a time, resolved once.

A stored checkpoint has no messages. It refers to threads of the same store that have them: to the run's own threads,
or to threads that are made when a run without a store is saved. So a run that is resumed from its checkpoint has a
lease, and its effects are in the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from askfirst.agent.answering import resume_with
from askfirst.agent.asking import MOOT
from askfirst.agent.live_thread import LiveThread
from askfirst.agent.question_ids import is_about
from askfirst.agent.result import AgentResult, KeptEffect, KeptRequest, RunCheckpoint, SerializedSession
from askfirst.agent.session import Session
from askfirst.agent.spec import Actor, AgentSpec
from askfirst.agent.thread import Thread
from askfirst.agent.tree import request_of
from askfirst.approvals import ApprovalResponse as ApprovalResponse
from askfirst.approvals import PendingApproval, ResponseLike, as_responses
from askfirst.checkpointer.base import (
    Checkpointer,
    CheckpointKeeper,
    CheckpointState,
    RunRecord,
    Settlement,
    Step,
    StoredCheckpoint,
    StoredEffect,
    StoredThread,
)
from askfirst.errors import (
    CheckpointNotFound,
    CheckpointNotPendingError,
    HitlStaleAnswer,
    InvalidCheckpoint,
    LeaseHeld,
    LeaseLost,
)
from askfirst.ids import child_thread_id, new_id
from askfirst.messages import JsonObject, Message
from askfirst.requests import HitlRequest, StoredRequest, same_question, with_seal

__all__ = [
    "ApprovalResponse",
    "CheckpointNotFound",
    "CheckpointNotPendingError",
    "PendingApproval",
    "RunCheckpoint",
    "RunCheckpointStore",
    "SavedCheckpoint",
    "SerializedSession",
    "resume_checkpoint",
]


class Memory(Checkpointer, CheckpointKeeper, Protocol):
    """The backing store of a `RunCheckpointStore`: any of Askfirst's checkpointers, open."""


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint in a store; times are seconds since 1970 (UTC).

    ``state`` is ``"pending"``, ``"resolving"`` (claimed by ``claimed_by`` until ``claimed_until``) or
    ``"resolved"``. ``checkpoint`` is the whole value; `RunCheckpointStore.list` leaves it None.
    """

    checkpoint_id: str
    agent_id: str
    thread_id: str | None
    state: CheckpointState
    claimed_by: str | None
    claimed_until: float | None
    created_at: float
    pending: tuple[PendingApproval, ...]
    retaken: bool
    """Whether a claim on the checkpoint lapsed and was taken over."""
    cursor: str
    """The checkpoint's place in a list; pass it as ``after``."""
    checkpoint: RunCheckpoint | None = None


class RunCheckpointStore:
    """Keeps checkpoints in a checkpointer, for hosts that answer approvals later or elsewhere.

    At most one worker holds the claim on a checkpoint. A claim that is neither resolved nor released lapses
    after ``claim_ttl_seconds``, and another worker can take it over; effects that were begun under the lapsed
    claim are in doubt, and not repeated.
    """

    def __init__(self, memory: Memory, claim_ttl_seconds: float = 86_400) -> None:
        if not callable(getattr(memory, "claim_checkpoint", None)):
            raise InvalidCheckpoint(
                [
                    f"{memory!r} keeps no checkpoints; give a checkpointer of Askfirst, such as SQLiteCheckpointer"
                ]
            )
        self.memory = memory
        self.claim_ttl_seconds = claim_ttl_seconds
        self._claims: dict[tuple[str, str], str] = {}

    async def save(self, agent_id: str, checkpoint: RunCheckpoint, *, thread_id: str | None = None) -> str:
        """Store a checkpoint as pending and return its id; ``thread_id`` is the host's own label for it.

        Saving the same checkpoint again changes nothing. Raises `InvalidCheckpoint` if its run is in another store,
        and `CheckpointNotPendingError` if the checkpoint was claimed or resolved meanwhile.
        """
        checkpoint_id = checkpoint.checkpoint_id or new_id()
        body = await import_checkpoint(self.memory, agent_id, checkpoint)
        await self.memory.save_checkpoint(checkpoint_id, agent_id, body, thread_id=thread_id)
        return checkpoint_id

    async def claim(
        self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None
    ) -> SavedCheckpoint:
        """Claim a checkpoint, to resume it. No other worker can claim it until it is released or the claim lapses.

        Raises `CheckpointNotFound`, and `CheckpointNotPendingError`, which says who holds the claim and until
        when.
        """
        by = f"{getattr(self.memory, 'owner', 'worker')}:{new_id()[-16:]}"
        stored = await self.memory.claim_checkpoint(
            checkpoint_id, agent_id, thread_id=thread_id, by=by, ttl_seconds=self.claim_ttl_seconds
        )
        self._claims[agent_id, checkpoint_id] = by
        return _saved(stored, await self._whole(stored))

    async def renew(self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None) -> None:
        """Renew the claim on a checkpoint for another ``claim_ttl_seconds``."""
        await self.memory.renew_checkpoint(
            checkpoint_id,
            agent_id,
            thread_id=thread_id,
            by=self._holder(agent_id, checkpoint_id),
            ttl_seconds=self.claim_ttl_seconds,
        )

    async def resolve(self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None) -> None:
        """Resolve a checkpoint that this store has claimed, for good."""
        by = self._holder(agent_id, checkpoint_id)
        await self.memory.resolve_checkpoint(checkpoint_id, agent_id, thread_id=thread_id, by=by)
        self._claims.pop((agent_id, checkpoint_id), None)

    async def release(self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None) -> None:
        """Release a checkpoint that this store has claimed: it is pending again."""
        by = self._holder(agent_id, checkpoint_id)
        await self.memory.release_checkpoint(checkpoint_id, agent_id, thread_id=thread_id, by=by)
        self._claims.pop((agent_id, checkpoint_id), None)

    async def get(
        self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None
    ) -> SavedCheckpoint | None:
        """A checkpoint with its messages, in whatever state; None if there is no such checkpoint."""
        stored = await self.memory.get_checkpoint(checkpoint_id, agent_id, thread_id=thread_id)
        return None if stored is None else _saved(stored, await self._whole(stored))

    async def list(
        self,
        agent_id: str,
        *,
        thread_id: str | None = None,
        state: CheckpointState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[SavedCheckpoint]:
        """An agent's checkpoints, oldest first, without their messages."""
        stored = await self.memory.list_checkpoints(
            agent_id, thread_id=thread_id, state=state, limit=limit, after=after
        )
        return [_saved(each) for each in stored]

    def _holder(self, agent_id: str, checkpoint_id: str) -> str:
        return self._claims.get((agent_id, checkpoint_id), "nobody")

    async def _whole(self, stored: StoredCheckpoint) -> RunCheckpoint:
        """The whole checkpoint, with its messages read from their threads."""
        body: Any = stored.body
        value: dict[str, Any] = dict(body["checkpoint"])
        value["root_messages"] = await self._messages(body["root"])
        sessions: list[Any] = value.get("subagent_sessions", [])
        for session, place in zip(sessions, body["sessions"], strict=True):
            session["messages"] = await self._messages(place)
        return RunCheckpoint.from_json(value)

    async def _messages(self, place: JsonObject) -> list[Any]:
        thread_id, upto = cast(str, place["thread_id"]), cast(int, place["upto"])
        thread = await self.memory.load(thread_id)
        if thread is None or len(thread.messages) < upto:
            raise InvalidCheckpoint([f"the thread {thread_id!r} that the checkpoint refers to is gone"])
        return list(thread.messages[:upto])


def _saved(stored: StoredCheckpoint, checkpoint: RunCheckpoint | None = None) -> SavedCheckpoint:
    body: Any = stored.body
    pending = tuple(PendingApproval.model_validate(each) for each in body["checkpoint"]["pending"])
    return SavedCheckpoint(
        checkpoint_id=stored.checkpoint_id,
        agent_id=stored.agent_id,
        thread_id=stored.thread_id,
        state=stored.state,
        claimed_by=stored.claimed_by,
        claimed_until=stored.claimed_until,
        created_at=stored.created_at,
        pending=pending,
        retaken=stored.retaken,
        cursor=stored.cursor,
        checkpoint=checkpoint,
    )


async def resume_checkpoint(
    spec: AgentSpec,
    checkpoint_id: str,
    responses: Sequence[ResponseLike],
    *,
    store: RunCheckpointStore,
    thread_id: str | None = None,
    by: str | None = None,
    via: str | None = None,
) -> AgentResult:
    """Claim a checkpoint, resume its run with people's decisions (values or plain dicts), and resolve the checkpoint.

    The checkpoint has to be saved under the spec's id. If the run pauses again, its new checkpoint is saved too, and
    is ``result.checkpoint``. If the run cannot be resumed, for example because a response does not fit, the
    checkpoint is released and the error is raised. If an earlier claim lapsed, responses that were settled under that
    claim may be given again. ``by`` and ``via`` record who decided, and where.

    A response counts only for a request that the checkpoint lists as pending. If a person was asked again since,
    about other arguments, this raises `HitlStaleAnswer`, and none of the responses is settled.
    """
    given = as_responses(responses)  # before anything is claimed
    saved = await store.claim(spec.id, checkpoint_id, thread_id=thread_id)
    renewing = asyncio.create_task(_renew(store, spec.id, checkpoint_id))
    try:
        checkpoint = cast(RunCheckpoint, saved.checkpoint)
        live = LiveThread(Thread(cast(str, checkpoint.thread_id)), store.memory, is_new=False)
        session = Session(Actor.root(spec, checkpoint.principal), live, None)
        result = await resume_with(session, given, by, via, again=saved.retaken, shown=checkpoint.pending)
        if result.checkpoint is not None:
            await store.save(spec.id, result.checkpoint, thread_id=saved.thread_id)
    except BaseException:
        await store.release(spec.id, checkpoint_id)
        raise
    finally:
        renewing.cancel()
        await asyncio.wait({renewing})
    if result.status == "suspended":  # another worker has the thread
        await store.release(spec.id, checkpoint_id)
    else:
        await store.resolve(spec.id, checkpoint_id)
    return result


async def _renew(store: RunCheckpointStore, agent_id: str, checkpoint_id: str) -> None:
    while True:
        await asyncio.sleep(store.claim_ttl_seconds / 3)
        await store.renew(agent_id, checkpoint_id)


# Storing a paused run's messages on threads, so that the checkpoint only refers to them.


_ATTEMPTS = 5


async def import_checkpoint(memory: Checkpointer, agent_id: str, checkpoint: RunCheckpoint) -> JsonObject:
    """Store a checkpoint's messages on threads, and return the checkpoint's body, which refers to them.

    Messages that the threads have already are not written again, so a run is stored once however often it
    pauses.
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
    """The part of a checkpoint that belongs to one thread."""

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
    """Raise `InvalidCheckpoint` unless the thread of a part begins with the part's messages."""
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
    """Append a part's missing messages to its thread, and open and settle its requests, in one step."""
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
    """The step that writes what a part has and its thread lacks; None if the thread lacks nothing."""
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
    """Whether a settled request is not yet settled in the store. A later round under its id is another request."""
    if known is None:
        return True
    return known.status == "pending" and same_question(known.request, settled.request.payload)


def _moot(known: Iterable[StoredRequest], new: Sequence[Message]) -> list[Settlement]:
    """Cancellations of open requests whose calls have their results among the new messages."""
    resolved = [message.tool_call_id for message in new if message.role == "tool"]
    return [
        Settlement(each.question_id, "cancelled", MOOT)
        for each in known
        if each.status == "pending" and any(is_about(each.question_id, call_id) for call_id in resolved)
    ]


def _settlement(settled: StoredRequest) -> Settlement:
    """The settlement that records how a request was settled before."""
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
