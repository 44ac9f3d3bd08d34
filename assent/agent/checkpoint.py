"""A paused run as a value: everything that another process needs to go on with it."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from assent.approvals import PendingApproval
from assent.errors import InvalidMessage
from assent.fitting import fit_answer
from assent.messages import JsonObject, Message, Usage, Value
from assent.requests import HitlRequest, RequestStatus, StoredRequest, plain_answer, seal_in, with_seal

_FOR_ANSWERS = {"payload": {"args_schema"}}
"""What a request that has its answer needs no more."""


class KeptRequest(Value):
    """What was asked about an open call, and what became of it."""

    request: JsonObject
    status: RequestStatus
    answer: Any = Field(default=None, repr=False)  # a person may have typed a secret there
    reason: str | None = None
    answered_by: str | None = None
    via: str | None = None
    seal: str | None = Field(default=None, repr=False)

    @classmethod
    def of(cls, stored: StoredRequest) -> "KeptRequest":
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
        """The request as a run knows it."""
        request = with_seal(HitlRequest.model_validate(self.request), self.seal)
        answer = None if self.answer is None else fit_answer(request, self.answer)
        return StoredRequest(
            request, thread_id, None, self.status, answer, self.reason, self.answered_by, self.via
        )


class KeptEffect(Value):
    """A tool body that was started and whose end nobody saw."""

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
    """What the run has cost so far, in tokens."""

    prompt: int = 0
    completion: int = 0

    @classmethod
    def of(cls, usage: Usage) -> "CheckpointUsage":
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
    def _whole(self) -> "RunCheckpoint":
        ids = [each.id for each in self.pending]
        if len(set(ids)) < len(ids):
            raise ValueError("two pending approvals have the same id")
        return self

    def to_json(self) -> str:
        """The checkpoint as JSON text."""
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def from_json(cls, data: str | bytes | Mapping[str, Any]) -> "RunCheckpoint":
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
