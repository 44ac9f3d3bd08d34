"""What a caller posts to open a case."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import to_json

from assent import limits
from assent.errors import InvalidDuration, InvalidProtocolObject
from assent.mail import is_mailable
from assent.protocol import (
    ACTIONS,
    Context,
    DefaultAction,
    Form,
    VerificationPolicy,
    check_form,
    parse_duration,
)
from assent.protocol.scalars import ServiceUrl, Time
from assent.service.context_limits import context_fault
from assent.service.json_size import count_values

DEFAULT_TIMEOUT = "24h"
LONGEST_SECONDS = 366 * 86_400
_TYPES = rf"^({'|'.join(ACTIONS)}|x-[a-z0-9_-]{{1,60}})$"


def _known_type(given: str) -> str:
    if re.fullmatch(_TYPES, given):
        return given
    near = get_close_matches(given, ACTIONS, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"is one of {', '.join(ACTIONS)}, or begins with x- and is in lower case{hint}")


_Type = Annotated[
    str,
    StringConstraints(max_length=64),
    AfterValidator(_known_type),
    WithJsonSchema({"type": "string", "pattern": _TYPES}),
]


def _mailable(address: str) -> str:
    if not is_mailable(address):
        raise ValueError("is an address without =?, which mail programs would decode")
    return address


# What browsers take for an address: no blanks, no quotes, nothing that a mail's header could be changed with.
_Address = Annotated[
    str,
    StringConstraints(
        max_length=254,
        pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*$",
    ),
    AfterValidator(_mailable),
]
_Action = Annotated[str, StringConstraints(max_length=100)]
_CaseId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,128}$")]


class ReviewRequest(BaseModel):
    """A case to be opened: what a person is to decide, and by when."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    type: _Type
    prompt: Annotated[str, StringConstraints(min_length=1, max_length=limits.PROMPT_CHARACTERS)]
    message: Annotated[str, StringConstraints(max_length=limits.MESSAGE_CHARACTERS)] | None = None
    context: dict[str, Any] = Field(default_factory=dict)
    timeout: Annotated[str, StringConstraints(max_length=64)] = DEFAULT_TIMEOUT
    default_action: DefaultAction = "skip"
    reminder_at: Time | Annotated[list[Time], Field(max_length=limits.REMINDERS)] | None = None
    hitl_callback_url: ServiceUrl | None = Field(default=None, repr=False)
    inline_actions: Annotated[list[_Action], Field(max_length=limits.INLINE_ACTIONS)] | None = None
    previous_case_id: _CaseId | None = None
    verification_policy: dict[str, Any] | None = None
    verify_email: (
        _Address | Annotated[list[_Address], Field(min_length=1, max_length=limits.ADDRESSES)] | None
    ) = None

    @field_validator("timeout")
    @classmethod
    def _length(cls, timeout: str) -> str:
        try:
            seconds = parse_duration(timeout)
        except InvalidDuration as error:
            raise ValueError(str(error)) from None
        if not 0 < seconds <= LONGEST_SECONDS:
            raise ValueError("is more than nothing and at most 366 days")
        return timeout

    @field_validator("reminder_at")
    @classmethod
    def _moments(cls, given: datetime | list[datetime] | None) -> datetime | list[datetime] | None:
        times = [] if given is None else given if isinstance(given, list) else [given]
        if not all(1971 <= each.year <= 9998 for each in times):
            raise ValueError("is a time between the years 1971 and 9998")
        return given

    @field_validator("context")
    @classmethod
    def _shown(cls, context: dict[str, Any]) -> dict[str, Any]:
        too_much = context_fault(context)  # first, so that nothing below finds many faults
        if too_much:
            raise ValueError(too_much)
        try:
            form: Form | None = Context.read(context).form
            if form is not None:
                check_form(form)
        except InvalidProtocolObject as error:
            raise ValueError(str(error)) from None
        if len(to_json(context)) > limits.CONTEXT_BYTES:
            raise ValueError(f"is at most {limits.CONTEXT_BYTES} bytes")
        return context

    @field_validator("verification_policy")
    @classmethod
    def _policy(cls, policy: dict[str, Any] | None) -> dict[str, Any] | None:
        if policy is None:
            return None
        if count_values(policy, limits.POLICY_VALUES) > limits.POLICY_VALUES:
            raise ValueError(f"has at most {limits.POLICY_VALUES} values")
        try:
            VerificationPolicy.read(policy)
        except InvalidProtocolObject as error:
            raise ValueError(str(error)) from None
        return policy

    @property
    def seconds(self) -> int:
        """How long the case is open."""
        return parse_duration(self.timeout)

    @property
    def reminders(self) -> tuple[int, ...]:
        """When to remind, in milliseconds since 1970, in order."""
        given = self.reminder_at
        times = [] if given is None else given if isinstance(given, list) else [given]
        return tuple(sorted(round(each.timestamp() * 1000) for each in times))

    @property
    def addresses(self) -> tuple[str, ...] | None:
        """The addresses that a code may be sent to, each once."""
        given = self.verify_email
        return None if given is None else tuple(dict.fromkeys([given] if isinstance(given, str) else given))

    @property
    def fingerprint(self) -> str:
        """The same for the same body, and for no other."""
        return hashlib.sha256(to_json(self.model_dump(mode="json"))).hexdigest()

    @property
    def unknown_actions(self) -> list[str]:
        """Inline actions that the type does not have."""
        known = ACTIONS.get(self.type, ("submit",))
        return [action for action in self.inline_actions or () if action not in known]
