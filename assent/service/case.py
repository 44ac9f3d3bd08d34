"""A case: something a person is asked, as the service keeps and shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from assent.messages import JsonObject
from assent.protocol import Form, State, is_final
from assent.requests import HitlRequest


@dataclass(frozen=True, slots=True)
class Case:
    """One case as it stands; times are milliseconds since 1970 (UTC).

    ``request`` is what an Assent agent asks; where it is None, another service opened the case with the API
    key ``key_id``. What a page shows of a request comes from ``request``, not from ``prompt``.
    """

    case_id: str
    type: str
    status: State
    version: int
    """Grows with every change; it is the poll answer's ETag."""
    prompt: str
    created_at: int
    expires_at: int
    timeout: str = "PT24H"
    default_action: str = "skip"
    message: str | None = None
    context: JsonObject = field(default_factory=dict[str, Any])
    key_id: str | None = None
    request: HitlRequest | None = None
    thread_id: str | None = None
    callback_url: str | None = None
    inline_actions: tuple[str, ...] | None = None
    verification_policy: JsonObject | None = None
    verify_email: tuple[str, ...] | None = None
    """The addresses of which one has to be shown to be the answering person's, by a code sent there."""
    previous_case_id: str | None = None
    reminder_at: tuple[int, ...] = ()
    opened_at: int | None = None
    ended_at: int | None = None
    reminder_sent_at: int | None = None
    result: JsonObject | None = None
    """``{"action": ..., "data": {...}}``, once it is completed."""
    responded_by: JsonObject | None = None
    """Who answered, where the service has verified that: ``name``, ``email``."""
    claimed_by: JsonObject | None = None
    """Who is said to have answered, which nobody verified: ``name``, ``account``."""
    submission_context: JsonObject | None = None
    reason: str | None = None
    progress: JsonObject | None = None
    next_case_id: str | None = None
    draft: JsonObject | None = None
    """What a person has filled in and not sent yet, by field key."""
    drafted_by: str | None = None
    """The mark of the browser that the draft came from; see `draft_owner`."""
    viewer: str | None = field(default=None, compare=False, repr=False)
    """The mark of the browser that looks at it now; not stored."""
    is_others_draft: bool = field(default=False, compare=False)
    """Whether the draft came from another browser than that; not stored."""
    size: int = field(default=0, compare=False, repr=False)
    """How many characters it has in the store, and so how much work it is to show."""

    @property
    def is_final(self) -> bool:
        """Whether it is answered, expired or cancelled."""
        return is_final(self.status)

    @property
    def never_expires(self) -> bool:
        """Whether it waits until somebody answers: ``expires_at`` is then as far off as the protocol allows."""
        return self.request is not None and self.request.timeout_seconds is None

    @property
    def form(self) -> Form | None:
        """The form to fill in, if there is one."""
        form = self.context.get("form")
        return None if form is None else Form.model_validate(form)

    @property
    def digest(self) -> str | None:
        """What an approval of this case is bound to: the digest of the call that is shown."""
        payload = None if self.request is None else self.request.payload
        return payload.digest if payload is not None and payload.kind == "approve" else None
