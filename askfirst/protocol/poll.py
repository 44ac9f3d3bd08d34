"""The poll answer: what a service tells about a case."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from askfirst.errors import InvalidProtocolObject
from askfirst.protocol.case import State
from askfirst.protocol.verification import SubmissionContext, SubmissionOrigin
from askfirst.protocol.wire import (
    CaseId,
    Count,
    Email,
    JsonObject,
    Opt,
    Positive,
    Text,
    Time,
    Uri,
    Wire,
    json_digest,
    read_leniently,
)

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
    """Who answered, where the service has verified that."""

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

    @property
    def claimed_by(self) -> SubmissionOrigin | None:
        """Who claims to have answered, by a messenger or an agent: unverified.

        `responded_by` is whom the service verified. The protocol has the claim in the submission context.
        """
        return None if self.submission_context is None else self.submission_context.submitted_by


class PollAnswer(CaseFacts):
    """The answer of another's ``poll_url``, as far as it was understood; see `read_leniently`."""

    status: State
    case_id: Text
    _aside: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])

    @property
    def aside(self) -> dict[str, Any]:
        """What else it held: fields that the protocol does not know, and values that cannot be used."""
        return self._aside

    @classmethod
    def read_leniently(cls, data: Mapping[str, Any]) -> Self:
        """Read an answer whose ``status`` and ``case_id`` are right, and that has a ``result`` if it is completed.

        Whatever else is in it may be missing or odd. Raises `InvalidProtocolObject`.
        """
        read = read_leniently(cls, data)
        if read.value.status == "completed" and read.value.result is None:
            raise InvalidProtocolObject(cls.__name__, {"result": "is required, with its action"})
        value = read.value
        if value.responded_by == RespondedBy():  # a person without a readable name or address
            value = value.model_copy(update={"responded_by": None})
        value._aside.update(read.aside)
        return value


class PollResponse(PollAnswer):
    """The answer of ``poll_url``. A final state brings its own facts, such as the ``result``."""

    model_config = ConfigDict(json_schema_extra={"allOf": _RULES})

    @model_validator(mode="after")
    def _final_facts(self) -> Self:
        missing = [name for name in _NEEDED.get(self.status, ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(f"a case that is {self.status} needs {' and '.join(missing)}")
        return self


def respondent_digest(
    responded_by: Mapping[str, Any] | None, submission_context: Mapping[str, Any] | None
) -> str:
    """SHA-256 over who answered: the verified person, and the claimed one (``submitted_by`` of the context)."""
    claimed = (submission_context or {}).get("submitted_by")
    return json_digest({"responded_by": responded_by, "claimed_by": claimed}, "responded_by")
