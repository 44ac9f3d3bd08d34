"""The contract of a checkpointer: durable threads, requests, checkpoints; and the crash points of tests.

The rules that every checkpointer keeps:

- **One step, one commit.** `Checkpointer.commit` writes a whole `Step` or nothing of it.
- **One writer, and none on a stale view.** A thread has a *fence*, a number that grows by one with every
  commit. A commit names the fence it stands on and fails, changing nothing, if the thread has moved since:
  so whoever writes has seen all that was written, also by a worker that was thought dead. A new thread's fence
  begins at a number that no thread of that name had before: who knew one that was deleted cannot write to it.
- **Leased only while work goes on.** A step may take the lease (``acquire``), keep it, or release it
  (``release``); one commit may do both. A held lease is renewed by a heartbeat until it is released or its
  holder dies; then it lapses and another worker may take it.
- **One settlement.** A request is settled once, by an answer, a cancel, a time-out, an abort or a newer
  prompt; every later attempt raises `HitlStaleAnswer` and changes nothing, whoever makes it.
- **The table is the truth.** `Checkpointer.settled` wakes by itself when somebody else settles a request;
  it returns what the store says, not what a notification said.
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
"""How long a lease is good for unless its holder renews it, where nothing else is said."""

POINTS = (
    "effect.started",  # tool bodies are about to begin
    "effect.ended",  # their results are in the transcript
    "request.opened",  # a person is asked
    "run.ended",  # the run has come to rest
    "prompt",  # a user message was appended
    "message",  # other messages were appended
    "step",  # none of these, such as a lease that is released
    "request.settled",  # outside of steps: an answer, a cancel or a time-out
)
"""Named places around the commits, where a test may make a process die.

Each commit has a point right after it, and one named ``"before:..."`` right before. A step's point is the first of
these that applies.
"""

hook: Callable[[str], None] | None = None
"""Called with a point's name as it is reached; set by `askfirst.hitl.testing`, None in production."""


def reached(point: str) -> None:
    """Say that a point is reached, such as ``"effect.started"`` once that is committed."""
    if hook is not None:
        hook(point)


@dataclass(frozen=True, slots=True)
class StoredEffect:
    """A tool body that was started. Where ``ended`` is False and nobody holds the lease, it is in doubt."""

    tool_call_id: str
    tool_name: str
    digest: str
    effect: str
    attempt: int
    ended: bool = False
    granted: str | None = None
    """The digest of the grant by which it is begun without a person being asked; not read back."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The latest run of a thread. ``status`` is None while it has not come to rest."""

    run_id: str
    agent_id: str
    status: str | None


@dataclass(frozen=True, slots=True)
class StoredThread:
    """A thread as it was loaded: what a worker needs to go on."""

    thread_id: str
    fence: int
    messages: list[Message]
    """To be read: what is in them may be shared by all in this process who have loaded the thread."""
    requests: dict[str, StoredRequest]
    """By question id, latest round only: those pending, and all of the latest run."""
    effects: dict[str, StoredEffect]
    """By tool call id: those started and not ended."""
    run: StoredRun | None = None
    lease_owner: str | None = None
    lease_until: float = 0.0
    """Seconds since 1970 (UTC), as all times here are."""
    is_leased: bool = False
    """Whether a worker was at the thread when it was loaded, by the checkpointer's clock."""
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
    """How a step ends a request itself: aborted, or superseded by a newer prompt.

    What was settled elsewhere may be written down as well, in the step that opens it: with its ``answer`` and who
    gave that, if it was answered.
    """

    question_id: str
    status: Literal["aborted", "superseded", "cancelled", "answered", "timed_out"]
    reason: str | None = None
    answer: Answer | None = None
    by: str | None = None
    via: str | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a step says of its run; ``status`` None while it goes on."""

    agent_id: str
    status: str | None = None
    iteration: int = 0
    usage: Usage = NO_USAGE


class Step(NamedTuple):
    """Everything that happens at once: written in one transaction, or not at all."""

    run_id: str
    messages: Sequence[Message] = ()
    opened: Sequence[HitlRequest] = ()
    """Requests to open. One whose question id is known already begins a new round of it."""
    settled: Sequence[Settlement] = ()
    """Requests to settle, those among them that it opens."""
    started: Sequence[StoredEffect] = ()
    """Effects about to begin; one that is known already is begun again, with its new attempt."""
    ended: Sequence[str] = ()
    """Tool call ids of the effects whose results are among the messages."""
    run: RunRecord | None = None
    release: bool = False
    parent_thread_id: str | None = None
    """The thread that this one works for; kept when the step makes the thread."""
    first_fence: int = 0
    """The fence after a step that makes its thread, chosen by a writer who needs to know it before the step is
    written (`askfirst.ids.first_fence`); 0 leaves it to the checkpointer."""
    parent_fence: int = 0
    """The fence at which the writer holds the thread that this one works for; a step that makes the thread fails with
    `LeaseLost` if it does not any more. 0 if nobody has to hold that."""


class Checkpointer(Protocol):
    """Keeps threads. Every method is safe to call from many tasks, and across processes, at once."""

    async def load(self, thread_id: str) -> StoredThread | None:
        """The thread as it stands, or None if there is none."""
        ...

    async def commit(self, thread_id: str, step: Step, *, fence: int, acquire: bool = False) -> int:
        """Write a step and return the thread's fence after it.

        With ``acquire`` the lease is taken: the thread must be at ``fence`` still and leased to nobody (or
        its lease lapsed), and its fence grows by one. Fence 0 stands for a thread that does not exist yet
        and is made, with a fence of its own. Without ``acquire`` the lease must be held at ``fence``. Raises
        `LeaseHeld` if someone else is at work, `LeaseLost` if the thread has moved on; nothing is written then.
        `InvalidStep` is for what no store could keep: nothing was sent, and whoever holds the lease holds it
        still. A caller that is cancelled meanwhile is told so only when the step is written, or certain not to
        be: then what it failed by is the ``__cause__`` of the `asyncio.CancelledError`.
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
        """Answer a request, with the answer's model or plain JSON, and return it as settled.

        Whoever showed the request to a person passes the ``digest`` of what it showed (`HitlRequest.digest`), or the
        ``round`` (`StoredRequest.round`): if something else was asked under the id since, the answer is stale and
        does not count for that. One that names neither counts for the first round alone.

        Raises `HitlStaleAnswer` for a request that is settled, past its deadline or not the one that is open,
        `HitlNoPendingRequest` for an unknown one on a thread where none is open, and `HitlInvalidAnswer` for an
        answer that does not fit.
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
        """End a request without an answer; the same errors as `settle`. It may name what was shown, too."""
        ...

    async def expire(self, thread_id: str, question_id: str) -> StoredRequest:
        """Settle a request as timed out if it is pending and past its deadline; return it as it stands."""
        ...

    async def expire_due(self, limit: int = 1000) -> list[StoredRequest]:
        """Settle every pending request that is past its deadline, waited for or not; return them."""
        ...

    async def settled(self, thread_id: str, question_id: str) -> StoredRequest:
        """Wait until a request is settled, by whomever, and return it. Raises `HitlNoPendingRequest`."""
        ...

    async def request(self, thread_id: str, question_id: str) -> StoredRequest | None:
        """A request as it stands now."""
        ...

    async def pending(self, limit: int = 100, after: str | None = None) -> list[StoredRequest]:
        """Open requests of all threads, oldest first; ``after`` is a `StoredRequest.cursor` to go on from."""
        ...

    async def save_pending_request(
        self, thread_id: str, request: HitlRequest | None, *, alone: bool = False
    ) -> None:
        """Store a request for a thread, lease or no lease; None ends whatever is pending there.

        With ``alone`` it raises `HitlConcurrencyError` if another is open on the thread, and stores nothing;
        one that is past its deadline does not count.
        """
        ...

    async def load_pending_request(self, thread_id: str) -> HitlRequest | None:
        """The thread's oldest pending request."""
        ...

    async def threads(self, limit: int = 100, after: str | None = None) -> list[ThreadInfo]:
        """Threads by id; ``after`` is the last id of the page before."""
        ...

    async def fork(self, thread_id: str, new_thread_id: str, upto: int | None = None) -> None:
        """A new thread with the first ``upto`` messages (all, if None) of another, and nothing else of it.

        But what was begun there and has no result here is in doubt here, subagents included.
        """
        ...

    async def delete(self, thread_id: str) -> None:
        """Remove a thread and all that belongs to it, its subagents' threads too. Raises `LeaseHeld` while it
        is at work."""
        ...


class WritesBehind(Protocol):
    """A checkpointer that can write while its caller goes on; it says so by being its own ``writes_behind``."""

    keeps_order: bool
    """Whether a step begun after another is written after it, so that it need not wait to be begun."""

    def begin_commit(
        self, thread_id: str, step: Step, *, fence: int, acquire: bool = False
    ) -> asyncio.Future[int]:
        """Begin what `Checkpointer.commit` does; the future brings the fence, or raises what that raises.

        The fence is the next one, or `Step.first_fence` where that is given and the thread is made.
        It cannot be called off: whoever is cancelled while waiting for it hears of that when it is done.
        """
        ...


CheckpointState = Literal["pending", "resolving", "resolved"]
"""Where a checkpoint is: to be claimed, in a worker's hands, or done with."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint and who holds it; times are seconds since 1970 (UTC)."""

    checkpoint_id: str
    agent_id: str
    thread_id: str | None
    body: JsonObject
    state: CheckpointState
    claimed_by: str | None
    """Who holds it, or resolved it."""
    claimed_until: float | None
    """When the claim lapses, while there is one."""
    created_at: float
    updated_at: float
    retaken: bool = False
    """Whether a claim on it ever lapsed and was taken over: what was begun under that claim is in doubt."""

    @property
    def cursor(self) -> str:
        """Where this checkpoint stands in `list_checkpoints`; hand it in as ``after``."""
        return f"{to_milliseconds(self.created_at)}:{self.checkpoint_id}"


class CheckpointKeeper(Protocol):
    """Keeps checkpoints: opaque values that one worker at a time may claim, and that are resolved once.

    A checkpoint belongs to an agent and perhaps to a thread. One of another agent, or of another thread than
    the ``thread_id`` that is given, counts as absent; without ``thread_id`` the thread is not looked at.
    Whoever writes a checkpoint hears of a cancellation only when that is done, or certain not to be.
    """

    async def save_checkpoint(
        self, checkpoint_id: str, agent_id: str, body: JsonObject, *, thread_id: str | None = None
    ) -> None:
        """Store a checkpoint as pending; one that is pending under this id already gets the new body.

        Raises `CheckpointNotPendingError` if it is claimed or resolved, `StoreError` if the id is another
        agent's or thread's. The thread need not exist: it may be a label of the host's.
        """
        ...

    async def claim_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str, ttl_seconds: float
    ) -> StoredCheckpoint:
        """Take a checkpoint for ``ttl_seconds``: pending becomes resolving, in the hands of ``by``.

        A claim that has lapsed can be taken over; ``retaken`` says so. ``by`` is a name that no other claim
        has: whoever knows it is the holder. Raises `CheckpointNotFound`, and `CheckpointNotPendingError` if
        the checkpoint is held, even by the same name, or resolved.
        """
        ...

    async def resolve_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str
    ) -> None:
        """Be done with a checkpoint, for good: resolving becomes resolved.

        Only for its holder, also after the claim has lapsed, as long as nobody has taken it over. Raises
        `CheckpointNotFound` and `CheckpointNotPendingError`.
        """
        ...

    async def release_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str
    ) -> None:
        """Give a checkpoint back: resolving becomes pending. For whom, and the errors, as in `resolve_checkpoint`."""
        ...

    async def renew_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str, ttl_seconds: float
    ) -> None:
        """Hold a checkpoint for ``ttl_seconds`` from now, or longer if it is held for longer already.

        For whom, and the errors, as in `resolve_checkpoint`.
        """
        ...

    async def get_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None
    ) -> StoredCheckpoint | None:
        """A checkpoint as it stands now, or None if there is none."""
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
        """Remove a checkpoint, if there is one. Raises `CheckpointNotPendingError` while it is held.

        Deleting a thread does not touch the checkpoints that name it.
        """
        ...
