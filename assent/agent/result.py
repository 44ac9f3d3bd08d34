"""How a run ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assent.agent.checkpoint import RunCheckpoint
from assent.agent.fold import answers, usage
from assent.approvals import PendingApproval
from assent.events import RunStatus
from assent.messages import Message, Usage


@dataclass(frozen=True, slots=True)
class AgentResult:
    """How a run ended, and the thread as it then stood.

    ``status`` is ``"completed"``, ``"paused"`` (calls wait for people, see ``pending_approvals``),
    ``"suspended"`` (it was detached while it waited, or superseded by a newer prompt, or another worker has gone
    on with it), ``"aborted"`` or ``"failed"``; ``reason`` says why where the status does not. ``text`` is the
    model's last word, ``messages`` the whole transcript, ``usage`` the cost of this run. A paused run comes with
    a ``checkpoint`` of itself.
    """

    status: RunStatus
    text: str
    messages: tuple[Message, ...]
    usage: Usage
    thread_id: str
    run_id: str
    reason: str | None = None
    checkpoint: RunCheckpoint | None = None
    pending_approvals: tuple[PendingApproval, ...] = ()


def paused(
    messages: Sequence[Message],
    thread_id: str,
    run_id: str,
    pending: tuple[PendingApproval, ...],
    checkpoint: RunCheckpoint,
) -> AgentResult:
    """A run that stopped where people have to decide."""
    calls = "1 call waits" if len(pending) == 1 else f"{len(pending)} calls wait"
    text, cost, reason = _last_words(messages), usage(messages), f"{calls} for a person"
    whole = checkpoint.root_messages
    return AgentResult("paused", text, whole, cost, thread_id, run_id, reason, checkpoint, pending)


def suspended(messages: Sequence[Message], thread_id: str, run_id: str, reason: str) -> AgentResult:
    """A run that stopped before its end and can be resumed, here or elsewhere."""
    return AgentResult(
        "suspended", _last_words(messages), tuple(messages), usage(messages), thread_id, run_id, reason
    )


def result_of(messages: Sequence[Message], thread_id: str, run_id: str) -> AgentResult:
    """Read the outcome off a transcript at rest."""
    last = next(answers(messages), None)
    status: RunStatus = "completed"
    reason = None
    if last is None:
        reason = "there is nothing to do: the transcript is empty"
    elif last.stop_reason == "error":
        status, reason = "failed", last.error or "the model failed without a reason"
    elif last.stop_reason == "aborted":
        status, reason = "aborted", last.error or "the run was aborted"
    elif last.stop_reason == "length":
        reason = "the model's answer was cut off at its length limit"
    text = "" if last is None else last.text
    return AgentResult(status, text, tuple(messages), usage(messages), thread_id, run_id, reason)


def _last_words(messages: Sequence[Message]) -> str:
    last = next(answers(messages), None)
    return last.text if last else ""
