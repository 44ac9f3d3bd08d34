"""AgentResult and RunCheckpoint: how a run came to rest, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from askfirst.agent.thread import last_answer, usage
from askfirst.approvals import PendingApproval
from askfirst.errors import InvalidMessage
from askfirst.events import RunStatus
from askfirst.messages import JsonObject, Message, Usage, Value
from askfirst.requests import (
    HitlRequest,
    RequestStatus,
    StoredRequest,
    fit_answer,
    plain_answer,
    seal_in,
    with_seal,
)


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
    """The result of a run that has stopped, read from its transcript."""
    last = last_answer(messages)
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
    last = last_answer(messages)
    return last.text if last else ""


# A paused run as a value: everything that another process needs to go on with it.


_FOR_ANSWERS = {"payload": {"args_schema"}}
"""The fields that a settled request no longer needs."""


class KeptRequest(Value):
    """A settled request about a call without a result: `StoredRequest` as JSON in a checkpoint."""

    request: JsonObject
    status: RequestStatus
    answer: Any = Field(default=None, repr=False)  # a person may have typed a secret there
    reason: str | None = None
    answered_by: str | None = None
    via: str | None = None
    seal: str | None = Field(default=None, repr=False)

    @classmethod
    def of(cls, stored: StoredRequest) -> KeptRequest:
        """A request as a portable value."""
        return cls(
            request=stored.request.model_dump(mode="json", exclude_none=True, exclude=_FOR_ANSWERS),
            status=stored.status,
            answer=None if stored.answer is None else plain_answer(stored.answer),
            reason=stored.reason,
            answered_by=stored.answered_by,
            via=stored.via,
            seal=seal_in(stored.request),
        )

    def stored(self, thread_id: str) -> StoredRequest:
        """The request as the thread of a restored run keeps it."""
        request = with_seal(HitlRequest.model_validate(self.request), self.seal)
        answer = None if self.answer is None else fit_answer(request, self.answer)
        return StoredRequest(
            request, thread_id, None, self.status, answer, self.reason, self.answered_by, self.via
        )


class KeptEffect(Value):
    """An effect in doubt: a tool body that was started and whose end is unknown."""

    tool_call_id: str
    tool_name: str
    digest: str
    effect: str
    attempt: int


class SerializedSession(Value):
    """A subagent's run within a paused one. ``tool_call_id`` is the caller's call that runs it."""

    spec_id: str
    thread_id: str
    agent_path: tuple[str, ...]
    call_path: tuple[str, ...]
    """The ids of the calls from the root to this session."""
    messages: tuple[Message, ...]
    requests: tuple[KeptRequest, ...] = ()
    effects: tuple[KeptEffect, ...] = ()


class CheckpointUsage(Value):
    """The tokens that the run has used so far."""

    prompt: int = 0
    completion: int = 0

    @classmethod
    def of(cls, usage: Usage) -> CheckpointUsage:
        """The two sums that a checkpoint keeps."""
        return cls.of_valid(prompt=usage.input_tokens, completion=usage.output_tokens)


class RunCheckpoint(Value):
    """A run where it waits for people: JSON in (`from_json`) and out (`to_json`).

    ``pending`` lists every call that waits, those of subagents included. Version 1 knows neither digests nor
    subagents nor answers given in part; both versions are read. ``stored`` says that the run is kept by a
    checkpointer, on ``thread_id``: it goes on there, not from this value alone. ``seals`` bind the answers to
    arguments that ``pending`` does not show, by the id of the approval; like the transcript, they are for whoever
    resumes the run, not for those who answer.
    """

    schema_version: Literal[1, 2] = 2
    spec_id: str
    iteration: int = 0
    usage: CheckpointUsage = CheckpointUsage.of_valid()
    root_messages: tuple[Message, ...]
    subagent_sessions: tuple[SerializedSession, ...] = ()
    pending: tuple[PendingApproval, ...]
    checkpoint_id: str | None = None
    thread_id: str | None = None
    run_id: str | None = None
    principal: str = "*"
    stored: bool = False
    root_requests: tuple[KeptRequest, ...] = ()
    root_effects: tuple[KeptEffect, ...] = ()
    seals: dict[str, str] | None = Field(default=None, repr=False)

    @model_validator(mode="after")
    def _whole(self) -> RunCheckpoint:
        ids = [each.id for each in self.pending]
        if len(set(ids)) < len(ids):
            raise ValueError("two pending approvals have the same id")
        return self

    def to_json(self) -> str:
        """The checkpoint as JSON text."""
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def from_json(cls, data: str | bytes | Mapping[str, Any]) -> RunCheckpoint:
        """The checkpoint that `to_json` wrote, from the text or from the object parsed from it.

        Raises `InvalidMessage`, naming the path to what is wrong, for anything else.
        """
        try:
            if isinstance(data, str | bytes):
                return cls.model_validate_json(data)
            return cls.model_validate(data)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            path = ".".join(map(str, fault["loc"]))
            raise InvalidMessage(path, f"no checkpoint: {fault['msg']}") from None
