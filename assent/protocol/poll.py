"""What a service tells about a case when it is asked."""

from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from assent.protocol.scalars import CaseId, Count, Email, JsonObject, Positive, Text, Time, Uri
from assent.protocol.states import State
from assent.protocol.verification import SubmissionContext
from assent.protocol.wire import Opt, Wire

_NEEDED = {
    "completed": ["result", "completed_at"],
    "expired": ["expired_at", "default_action"],
    "cancelled": ["cancelled_at"],
}
_RULES: list[Any] = [
    {"if": {"properties": {"status": {"const": state}}}, "then": {"required": needed}}
    for state, needed in _NEEDED.items()
]


class ResultSignature(Wire):
    """A service's signature under a result; ``signer`` is the address of its keys (JWKS)."""

    algorithm: Opt[Text] = None
    value: Opt[Text] = None
    signed_at: Opt[Time] = None
    signer: Opt[Uri] = None


class Result(Wire):
    """What the person decided. ``data`` may hold sensitive values and is in no ``repr``."""

    action: Text
    data: Opt[JsonObject] = Field(default=None, repr=False)
    signature: Opt[ResultSignature] = None


class RespondedBy(Wire):
    """Who answered, where the service knows."""

    name: Opt[Text] = None
    email: Opt[Email] = None


class Progress(Wire):
    """How far a person is in a form; steps count from 1."""

    current_step: Opt[Positive] = None
    total_steps: Opt[Positive] = None
    completed_fields: Opt[Count] = None
    total_fields: Opt[Count] = None


class CaseFacts(Wire):
    """What may be told about a case besides its name and state."""

    created_at: Opt[Time] = None
    opened_at: Opt[Time] = None
    expires_at: Opt[Time] = None
    completed_at: Opt[Time] = None
    expired_at: Opt[Time] = None
    cancelled_at: Opt[Time] = None
    result: Opt[Result] = None
    responded_by: Opt[RespondedBy] = None
    submission_context: Opt[SubmissionContext] = None
    progress: Opt[Progress] = None
    reminder_sent_at: Opt[Time] = None
    next_case_id: Opt[CaseId] = None
    default_action: Opt[Text] = None
    reason: Opt[Text] = None


class PollResponse(CaseFacts):
    """The answer of ``poll_url``. A final state brings its own facts, such as the ``result``."""

    model_config = ConfigDict(json_schema_extra={"allOf": _RULES})

    status: State
    case_id: Text

    @model_validator(mode="after")
    def _final_facts(self) -> Self:
        missing = [name for name in _NEEDED.get(self.status, ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(f"a case that is {self.status} needs {' and '.join(missing)}")
        return self
