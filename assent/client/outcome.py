"""How a review ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from assent.messages import JsonObject
from assent.protocol import RespondedBy, SubmissionContext

OutcomeStatus = Literal["completed", "expired", "cancelled"]


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """What a person decided on another service's review, or that nobody did. Its data are in no ``repr``."""

    status: OutcomeStatus
    action: str
    """The person's; the declared default of a case that expired; ``cancelled`` of one that was cancelled."""
    case_id: str
    """The last round's."""
    data: JsonObject = field(default_factory=dict[str, JsonValue], repr=False)
    rounds: int = 1
    """How many cases it took, from the first to the last."""
    responded_by: RespondedBy | None = None
    submission_context: SubmissionContext | None = None
    default_action: str | None = None
    reason: str | None = None
    """Why it was cancelled, where the service says."""
    next_case_id: str | None = None
    """The round that follows, where the service names one that it does not show us, or not yet.

    After an ``edit`` that is the round which you begin with what you have revised.
    """

    sensitive: frozenset[str] = frozenset()
    """The keys of ``data`` whose values must not be logged, traced or shown to a model."""

    is_verified: bool = False
    """Whether the service's signature was checked: it covers what was decided, by whom, and what was shown."""
    more: JsonObject = field(default_factory=dict[str, JsonValue], repr=False)
    """What else the service's last answer held: fields of its own, and values that cannot be used, such as a
    ``responded_by`` that is a text. Nothing of it was checked."""
    offer_more: JsonObject = field(default_factory=dict[str, JsonValue], repr=False)
    """The same of the hitl object that asked."""

    @property
    def expired(self) -> bool:
        """Whether nobody answered in time, so that ``action`` is the default one."""
        return self.status == "expired"

    @property
    def cancelled(self) -> bool:
        """Whether the service took the case back."""
        return self.status == "cancelled"
