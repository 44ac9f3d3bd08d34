"""The contract of a checkpointer: durable threads, requests, checkpoints; and the crash points of tests.

The rules that every checkpointer keeps:

- **One step, one commit.** `Checkpointer.commit` writes a whole `Step` or nothing of it.
- **One writer, which has read everything.** A thread has a *fence*, a number that grows by one with every commit. A
  commit names the fence that its writer has read. It fails, changing nothing, if the thread's fence has grown since.
  So a worker that writes has read everything that was written, also by a worker whose lease had lapsed. The fence of
  a new thread begins above all fences of deleted threads with the same id, so that a worker that has loaded the
  deleted thread cannot write to the new one.
- **Leased only while a worker works.** A step may take the lease (``acquire``), keep it, or release it
  (``release``); one commit may do both. A held lease is renewed by a heartbeat until it is released or its
  holder dies; then it lapses and another worker may take it.
- **One settlement.** A request is settled once, by an answer, a cancel, a time-out, an abort or a newer
  prompt; every later attempt raises `HitlStaleAnswer` and changes nothing, whoever makes it.
- **The table is the truth.** `Checkpointer.settled` returns when another process settles a request. A notification
  only wakes it; what it returns is read from the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from askfirst.clock import to_milliseconds
from askfirst.messages import NO_USAGE, JsonObject, Message, Usage
from askfirst.requests import Answer, HitlRequest, StoredRequest

LEASE_SECONDS = 30.0
"""How long a lease lasts without renewal, by default."""

POINTS = (
    "effect.started",  # tool bodies are about to begin
    "effect.ended",  # the bodies' results are in the transcript
    "request.opened",  # a person is asked
    "run.ended",  # the run has come to rest
    "prompt",  # a user message was appended
    "message",  # other messages were appended
    "step",  # none of these, such as a lease that is released
    "request.settled",  # outside of steps: an answer, a cancel or a time-out
)
"""The crash points: named places around commits, at which a test may kill a process.

Each commit has a point right after it, and one named ``"before:..."`` right before. A step's point is the first of
these that applies.
"""

hook: Callable[[str], None] | None = None
"""Called with a point's name as it is reached; set by `askfirst.hitl.testing`, None in production."""


def reached(point: str) -> None:
    """Report that a crash point is reached, such as ``"effect.started"`` right after that commit."""
    if hook is not None:
        hook(point)


@dataclass(frozen=True, slots=True)
class StoredEffect:
    """The ledger's entry for a tool body that was begun. If ``ended`` is False and nobody holds the thread's lease,
    the effect is in doubt."""

    tool_call_id: str
    tool_name: str
    digest: str
    effect: str
    attempt: int
    ended: bool = False
    granted: str | None = None
    """The digest of the grant that allowed the call without asking a person; written only, not read back."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The latest run of a thread. ``status`` is None while it has not come to rest."""

    run_id: str
    agent_id: str
    status: str | None


@dataclass(frozen=True, slots=True)
class StoredThread:
    """A thread as it was loaded: what a worker needs to continue it."""

    thread_id: str
    fence: int
    messages: list[Message]
    """Do not change them: all loads of the thread in this process share these objects."""
    requests: dict[str, StoredRequest]
    """The latest round of each question, by question id: pending ones, and all of the latest run."""
    effects: dict[str, StoredEffect]
    """Effects that were begun and have not ended, by tool call id."""
    run: StoredRun | None = None
    lease_owner: str | None = None
    lease_until: float = 0.0
    """Seconds since 1970 (UTC), like all times here."""
    is_leased: bool = False
    """Whether a worker held the lease when the thread was loaded, by the checkpointer's clock."""
    extra: JsonObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """A thread in a list."""

    thread_id: str
    parent_thread_id: str | None
    messages: int
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a step settles a request: as aborted, or as superseded by a newer prompt.

    The step that opens a request can also record how the request was settled outside the store, with its ``answer``
    and who answered.
    """

    question_id: str
    status: Literal["aborted", "superseded", "cancelled", "answered", "timed_out"]
    reason: str | None = None
    answer: Answer | None = None
    by: str | None = None
    via: str | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The run's record as a step writes it; ``status`` is None while the run goes on."""

    agent_id: str
    status: str | None = None
    iteration: int = 0
    usage: Usage = NO_USAGE


class Step(NamedTuple):
    """A group of changes to a thread that is written in one transaction, or not at all."""

    run_id: str
    messages: Sequence[Message] = ()
    opened: Sequence[HitlRequest] = ()
    """Requests to open. A question id that exists already gets a new round."""
    settled: Sequence[Settlement] = ()
    """Requests to settle; they may be among ``opened``."""
    started: Sequence[StoredEffect] = ()
    """Effects about to begin; one that exists already is begun again, with its new attempt number."""
    ended: Sequence[str] = ()
    """Tool call ids of the effects whose results are among the messages."""
    run: RunRecord | None = None
    release: bool = False
    parent_thread_id: str | None = None
    """The caller's thread, if this is a subagent's; stored by the step that makes the thread."""
    first_fence: int = 0
    """The fence of the thread that the step makes, if the writer has to know it before the step is written
    (`askfirst.ids.first_fence`); 0 lets the checkpointer choose it."""
    resumer: str | None = None
    """The name of the resumer that continues when a request that the step opens is settled."""
    resumes: str | None = None
    """The thread to resume: this one, or the thread of the agent at the top of the tree."""
    parent_fence: int = 0
    """The fence at which the writer holds the lease of the caller's thread; 0 if that is not to be checked.

    A step that makes a subagent's thread raises `LeaseLost` if the caller's lease is lost by then.
    """


class Checkpointer(Protocol):
    """Keeps threads. Every method is safe to call from many tasks, and across processes, at once."""

    async def load(self, thread_id: str) -> StoredThread | None:
        """The current state of a thread, or None if there is none."""
        ...

    async def commit(self, thread_id: str, step: Step, *, fence: int, acquire: bool = False) -> int:
        """Write a step and return the thread's fence after it.

        With ``acquire`` the lease is taken: the thread must still be at ``fence``, and nobody may hold its lease
        (unless it has lapsed). Without ``acquire`` the caller must hold the lease at ``fence``. The fence grows by
        one. Fence 0 stands for a thread that does not exist yet; it is made, with a new first fence.

        Raises `LeaseHeld` if another worker has the lease, and `LeaseLost` if the thread's fence has moved;
        nothing is written then. Raises `InvalidStep` for values that cannot be stored: nothing was sent, and the
        lease is unchanged.

        A cancelled caller gets `asyncio.CancelledError` only when it is certain whether the step is committed; if the
        step failed, its error is the ``__cause__``.
        """
        ...

    async def settle(
        self,
        thread_id: str,
        question_id: str,
        answer: Any,
        *,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
        round: int | None = None,
    ) -> StoredRequest:
        """Answer a request, with the answer's model or plain JSON, and return the settled request.

        Pass the ``digest`` of what the person was shown (`HitlRequest.digest`), or its ``round``
        (`StoredRequest.round`): if the question was asked again since with other content, the answer is stale.
        An answer that names neither counts for the first round only.

        Raises `HitlStaleAnswer` if the request is settled, past its deadline, or not the one that is open;
        `HitlNoPendingRequest` for an unknown id on a thread without open requests; `HitlInvalidAnswer` for an
        answer that does not fit the request.
        """
        ...

    async def cancel(
        self,
        thread_id: str,
        question_id: str,
        reason: str = "cancelled",
        *,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
        round: int | None = None,
    ) -> StoredRequest:
        """Cancel a request, without an answer. Digest, round and errors are as for `settle`."""
        ...

    async def expire(self, thread_id: str, question_id: str) -> StoredRequest:
        """Settle a request as timed out if it is pending and past its deadline; returns its current state."""
        ...

    async def expire_due(self, limit: int = 1000) -> list[StoredRequest]:
        """Settle up to ``limit`` pending requests that are past their deadlines as timed out, whether or not a run
        waits for them.

        Returns the settled requests.
        """
        ...

    async def settled(
        self, thread_id: str, question_id: str, *, asked: HitlRequest | None = None
    ) -> StoredRequest:
        """Wait until a request is settled, by any process, and return it. Raises `HitlNoPendingRequest`.

        ``asked`` is the request that the caller waits for: if another one was opened under its id since, ``asked``
        is returned as superseded.
        """
        ...

    async def request(self, thread_id: str, question_id: str) -> StoredRequest | None:
        """The current state of a request, or None if there is none."""
        ...

    async def pending(self, limit: int = 100, after: str | None = None) -> list[StoredRequest]:
        """Open requests of all threads, oldest first; ``after`` is a `StoredRequest.cursor` to go on from."""
        ...

    async def save_pending_request(
        self, thread_id: str, request: HitlRequest | None, *, alone: bool = False
    ) -> None:
        """Store a request for a thread, without a lease; None cancels all pending requests of the thread.

        With ``alone`` it raises `HitlConcurrencyError`, and stores nothing, if another request is open on the
        thread. A request past its deadline does not count as open.
        """
        ...

    async def load_pending_request(self, thread_id: str) -> HitlRequest | None:
        """The thread's oldest pending request."""
        ...

    async def threads(self, limit: int = 100, after: str | None = None) -> list[ThreadInfo]:
        """Threads by id; ``after`` is the last id of the page before."""
        ...

    async def fork(self, thread_id: str, new_thread_id: str, upto: int | None = None) -> None:
        """Make a new thread with the first ``upto`` messages of another (None: all), and nothing else.

        If a call's body was begun on the original thread, and the copy has no result of the call, the call is in
        doubt on the new thread; calls of subagents too.
        """
        ...

    async def delete(self, thread_id: str) -> None:
        """Delete a thread with all its rows, and its subagents' threads.

        Raises `LeaseHeld` while one of them is leased.
        """
        ...


class WritesBehind(Protocol):
    """A checkpointer that can write while its caller goes on (write-behind). It has a property ``writes_behind``
    that returns the checkpointer itself."""

    keeps_order: bool
    """Whether steps are written in the order in which they were begun. Then a step can be begun before the previous
    step is committed.
    """

    def begin_commit(
        self, thread_id: str, step: Step, *, fence: int, acquire: bool = False
    ) -> asyncio.Future[int]:
        """Begin a `Checkpointer.commit`; the future has the new fence, or the error.

        The new fence is ``fence + 1``, or `Step.first_fence` if that is given and the thread is made. The write
        cannot be cancelled: a cancelled waiter gets `asyncio.CancelledError` when the write is done.
        """
        ...


CheckpointState = Literal["pending", "resolving", "resolved"]
"""The state of a checkpoint: unclaimed, claimed by a worker, or done."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint, with its state and its claim; times are seconds since 1970 (UTC)."""

    checkpoint_id: str
    agent_id: str
    thread_id: str | None
    body: JsonObject
    state: CheckpointState
    claimed_by: str | None
    """The name under which the checkpoint is claimed, or was resolved."""
    claimed_until: float | None
    """When the claim lapses; None without a claim."""
    created_at: float
    updated_at: float
    retaken: bool = False
    """Whether a claim on the checkpoint ever lapsed and was taken over; effects that were begun under the lapsed
    claim are in doubt."""

    @property
    def cursor(self) -> str:
        """The checkpoint's place in `list_checkpoints`; pass it as ``after``."""
        return f"{to_milliseconds(self.created_at)}:{self.checkpoint_id}"


class CheckpointKeeper(Protocol):
    """Keeps checkpoints: opaque values that one worker at a time may claim, and that are resolved once.

    A checkpoint belongs to an agent and perhaps to a thread. A checkpoint of another agent, or of another
    thread than ``thread_id``, counts as absent; without ``thread_id`` the thread is not checked. A cancelled
    writer gets `asyncio.CancelledError` only when it is certain whether the write is committed.
    """

    async def save_checkpoint(
        self, checkpoint_id: str, agent_id: str, body: JsonObject, *, thread_id: str | None = None
    ) -> None:
        """Store a checkpoint as pending; a pending checkpoint with this id gets the new body.

        Raises `CheckpointNotPendingError` if it is claimed or resolved, `StoreError` if the id belongs to another
        agent or thread. The thread need not exist: it may be a label that the host chose.
        """
        ...

    async def claim_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str, ttl_seconds: float
    ) -> StoredCheckpoint:
        """Claim a checkpoint for ``ttl_seconds``: pending becomes resolving, held by ``by``.

        A claim that has lapsed can be taken over; ``retaken`` says so. ``by`` must be unique to this claim:
        later calls prove with it that they hold the claim. Raises `CheckpointNotFound`, and
        `CheckpointNotPendingError` if the checkpoint is claimed, even by the same name, or resolved.
        """
        ...

    async def resolve_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str
    ) -> None:
        """Resolve a checkpoint for good: resolving becomes resolved.

        Only the holder of the claim may do so, even after the claim has lapsed, unless another worker has taken
        it over. Raises `CheckpointNotFound` and `CheckpointNotPendingError`.
        """
        ...

    async def release_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str
    ) -> None:
        """Release a claim: resolving becomes pending. Who may do so, and the errors: see `resolve_checkpoint`."""
        ...

    async def renew_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str, ttl_seconds: float
    ) -> None:
        """Renew a claim for ``ttl_seconds`` from now; a claim that lasts longer already is not shortened.

        Who may do so, and the errors, are as in `resolve_checkpoint`.
        """
        ...

    async def get_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None
    ) -> StoredCheckpoint | None:
        """The current state of a checkpoint, or None if there is none."""
        ...

    async def list_checkpoints(
        self,
        agent_id: str,
        *,
        thread_id: str | None = None,
        state: CheckpointState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[StoredCheckpoint]:
        """An agent's checkpoints, oldest first; ``after`` is a `StoredCheckpoint.cursor` to go on from."""
        ...

    async def delete_checkpoint(self, checkpoint_id: str, agent_id: str) -> None:
        """Delete a checkpoint, if there is one. Raises `CheckpointNotPendingError` while it is claimed.

        Deleting a thread does not touch the checkpoints that name it.
        """
        ...
