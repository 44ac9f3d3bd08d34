"""Durable threads: the contract between an agent and whatever keeps its threads.

The rules that every checkpointer keeps:

- **One step, one commit.** `Checkpointer.commit` writes a whole `Step` or nothing of it.
- **One writer, and none on a stale view.** A thread has a *fence*, a number that grows by one with every
  commit. A commit names the fence it stands on and fails, changing nothing, if the thread has moved since:
  so whoever writes has seen all that was written, also by a worker that was thought dead.
- **Leased only while work goes on.** A step may take the lease (``acquire``), keep it, or give it back
  (``release``); one commit may do both. A held lease is renewed in the background until it is given back
  or its holder dies; then it lapses and another may take it.
- **One settlement.** A request is settled once, by an answer, a cancel, a time-out, an abort or a newer
  prompt; every later attempt raises `HitlStaleAnswer` and changes nothing, whoever makes it.
- **The table is the truth.** `Checkpointer.settled` wakes by itself when somebody else settles a request;
  it returns what the store says, not what a notification said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from assent.messages import JsonObject, Message, Usage
from assent.requests import HitlRequest, StoredRequest


@dataclass(frozen=True, slots=True)
class StoredEffect:
    """A tool body that was started. Where ``ended`` is False and nobody holds the lease, it is in doubt."""

    tool_call_id: str
    tool_name: str
    digest: str
    effect: str
    attempt: int
    ended: bool = False


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
    requests: dict[str, StoredRequest]
    """By question id, latest round only: those pending, and all of the latest run."""
    effects: dict[str, StoredEffect]
    """By tool call id: those started and not ended."""
    run: StoredRun | None = None
    lease_owner: str | None = None
    lease_until: int = 0
    is_leased: bool = False
    """Whether a worker was at the thread when it was loaded, by the checkpointer's clock."""
    extra: JsonObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """A thread in a list."""

    thread_id: str
    parent_thread_id: str | None
    messages: int
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a step ends a request itself: aborted, or superseded by a newer prompt."""

    question_id: str
    status: Literal["aborted", "superseded", "cancelled"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a step says of its run; ``status`` None while it goes on."""

    agent_id: str
    status: str | None = None
    iteration: int = 0
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Step:
    """Everything that happens at once: written in one transaction, or not at all."""

    run_id: str
    messages: Sequence[Message] = ()
    opened: Sequence[HitlRequest] = ()
    """Requests to open. One whose question id is known already begins a new round of it."""
    settled: Sequence[Settlement] = ()
    started: Sequence[StoredEffect] = ()
    """Effects about to begin; one that is known already is begun again, with its new attempt."""
    ended: Sequence[str] = ()
    """Tool call ids of the effects whose results are among the messages."""
    run: RunRecord | None = None
    release: bool = False


class Checkpointer(Protocol):
    """Keeps threads. Every method is safe to call from many tasks, and across processes, at once."""

    async def load(self, thread_id: str) -> StoredThread | None:
        """The thread as it stands, or None if there is none."""
        ...

    async def commit(self, thread_id: str, step: Step, *, fence: int, acquire: bool = False) -> int:
        """Write a step and return the thread's fence after it.

        With ``acquire`` the lease is taken: the thread must be at ``fence`` still and leased to nobody (or
        its lease lapsed), and its fence grows by one. Fence 0 stands for a thread that does not exist yet
        and is made. Without ``acquire`` the lease must be held at ``fence``. Raises `LeaseHeld` if someone
        else is at work, `LeaseLost` if the thread has moved on; nothing is written then. A caller that is
        cancelled meanwhile is told so only when the step is written, or certain not to be.
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
    ) -> StoredRequest:
        """Answer a request, with the answer's model or plain JSON, and return it as settled.

        A surface that showed an approve passes the ``digest`` it showed: if the call was asked again since,
        with other arguments, the answer is stale and does not count for them.

        Raises `HitlNoPendingRequest` for an unknown request, `HitlStaleAnswer` for one that is settled or
        past its deadline, `HitlInvalidAnswer` for an answer that does not fit.
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
    ) -> StoredRequest:
        """End a request without an answer; the same errors as `settle`."""
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

    async def save_pending_request(self, thread_id: str, request: HitlRequest | None) -> None:
        """Store a request for a thread, lease or no lease; None ends whatever is pending there."""
        ...

    async def load_pending_request(self, thread_id: str) -> HitlRequest | None:
        """The thread's oldest pending request."""
        ...

    async def threads(self, limit: int = 100, after: str | None = None) -> list[ThreadInfo]:
        """Threads by id; ``after`` is the last id of the page before."""
        ...

    async def fork(self, thread_id: str, new_thread_id: str, upto: int | None = None) -> None:
        """A new thread with the first ``upto`` messages (all, if None) of another, and nothing else of it."""
        ...

    async def delete(self, thread_id: str) -> None:
        """Remove a thread and all that belongs to it. Raises `LeaseHeld` while it is at work."""
        ...
