"""Checkpoints that are kept: saved, claimed by one worker at a time, resolved once.

A checkpoint's messages are not kept with it but on threads of the same store, each message once: those of the
thread that the run is stored on, or of one that is made when a run without a store is saved. So a run that is
resumed through the store goes on under a lease, and its effects are kept account of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from assent.agent.answering import resume_with
from assent.agent.checkpoint import RunCheckpoint, SerializedSession
from assent.agent.result import AgentResult
from assent.agent.run import Thread
from assent.agent.session import Session
from assent.agent.spec import AgentSpec
from assent.approvals import ApprovalResponse as ApprovalResponse
from assent.approvals import PendingApproval as PendingApproval
from assent.approvals import ResponseLike, as_responses
from assent.checkpointer.base import Checkpointer, CheckpointKeeper, CheckpointState, StoredCheckpoint
from assent.errors import CheckpointNotFound, CheckpointNotPendingError, InvalidCheckpoint
from assent.ids import new_id
from assent.imported import import_checkpoint
from assent.messages import JsonObject

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
    """What a `RunCheckpointStore` keeps things in: any of Assent's checkpointers, open."""


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint in a store; times are milliseconds since 1970 (UTC).

    ``state`` is ``"pending"``, ``"resolving"`` (claimed by ``claimed_by`` until ``claimed_until``) or
    ``"resolved"``. ``checkpoint`` is the whole value; a list leaves it out, but not ``pending``.
    """

    checkpoint_id: str
    agent_id: str
    thread_id: str | None
    state: CheckpointState
    claimed_by: str | None
    claimed_until: int | None
    created_at: int
    pending: tuple[PendingApproval, ...]
    retaken: bool
    """Whether a claim on it lapsed and was taken over."""
    cursor: str
    """Where it stands in a list; hand it in as ``after``."""
    checkpoint: RunCheckpoint | None = None


class RunCheckpointStore:
    """Keeps checkpoints in a checkpointer, for hosts that answer approvals later or elsewhere.

    Two workers never hold the same claim. One that is neither resolved nor released lapses after
    ``claim_ttl_seconds`` and can be taken again; what had begun by then is in doubt, and not repeated.
    """

    def __init__(self, memory: Memory, claim_ttl_seconds: float = 86_400) -> None:
        if not callable(getattr(memory, "claim_checkpoint", None)):
            raise InvalidCheckpoint(
                [
                    f"{memory!r} keeps no checkpoints; give one of Assent's checkpointers, such as SQLiteCheckpointer"
                ]
            )
        self.memory = memory
        self.claim_ttl_seconds = claim_ttl_seconds
        self._claims: dict[tuple[str, str], str] = {}

    async def save(self, agent_id: str, checkpoint: RunCheckpoint, *, thread_id: str | None = None) -> str:
        """Keep a checkpoint as pending and return its id; ``thread_id`` is the host's own label for it.

        Saving the same one again changes nothing. Raises `InvalidCheckpoint` if its run is kept in another
        store, `CheckpointNotPendingError` if it is claimed or resolved by now.
        """
        checkpoint_id = checkpoint.checkpoint_id or new_id()
        body = await import_checkpoint(self.memory, agent_id, checkpoint)
        await self.memory.save_checkpoint(checkpoint_id, agent_id, body, thread_id=thread_id)
        return checkpoint_id

    async def claim(
        self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None
    ) -> SavedCheckpoint:
        """Take a checkpoint, to resume it; nobody else can until it is released, resolved or the claim lapses.

        Raises `CheckpointNotFound`, and `CheckpointNotPendingError`, which says who holds it and until when.
        """
        by = f"{getattr(self.memory, 'owner', 'worker')}:{new_id()[-16:]}"
        stored = await self.memory.claim_checkpoint(
            checkpoint_id, agent_id, thread_id=thread_id, by=by, ttl_seconds=self.claim_ttl_seconds
        )
        self._claims[agent_id, checkpoint_id] = by
        return _saved(stored, await self._whole(stored))

    async def renew(self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None) -> None:
        """Hold on to a checkpoint for another ``claim_ttl_seconds``."""
        await self.memory.renew_checkpoint(
            checkpoint_id,
            agent_id,
            thread_id=thread_id,
            by=self._holder(agent_id, checkpoint_id),
            ttl_seconds=self.claim_ttl_seconds,
        )

    async def resolve(self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None) -> None:
        """Be done with a checkpoint that this store claimed, for good."""
        by = self._holder(agent_id, checkpoint_id)
        await self.memory.resolve_checkpoint(checkpoint_id, agent_id, thread_id=thread_id, by=by)
        self._claims.pop((agent_id, checkpoint_id), None)

    async def release(self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None) -> None:
        """Give back a checkpoint that this store claimed: it is pending again."""
        by = self._holder(agent_id, checkpoint_id)
        await self.memory.release_checkpoint(checkpoint_id, agent_id, thread_id=thread_id, by=by)
        self._claims.pop((agent_id, checkpoint_id), None)

    async def get(
        self, agent_id: str, checkpoint_id: str, *, thread_id: str | None = None
    ) -> SavedCheckpoint | None:
        """A checkpoint as it stands, whole; None if there is none."""
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
        """The checkpoint, its messages read from the threads they stand on."""
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
    """Claim a checkpoint, go on from it with people's decisions (values or plain dicts), and resolve it.

    It was saved under the spec's id. A run that pauses again is saved again, as ``result.checkpoint``. If it
    cannot go on, because a response does not fit for example, the checkpoint is released and the error
    raised. After a claim that lapsed the same responses may come again. ``by`` and ``via`` are recorded as who
    decided, and where.

    A response counts for what the checkpoint lists as pending, and nothing else: if that was asked about again
    since, with other arguments, it raises `HitlStaleAnswer`, and none of the responses is settled.
    """
    given = as_responses(responses)  # before anything is claimed
    saved = await store.claim(spec.id, checkpoint_id, thread_id=thread_id)
    renewing = asyncio.create_task(_renew(store, spec.id, checkpoint_id))
    try:
        checkpoint = cast(RunCheckpoint, saved.checkpoint)
        thread = Thread(cast(str, checkpoint.thread_id))
        session = Session(spec, thread, None, store.memory, is_new=False, principal=checkpoint.principal)
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
