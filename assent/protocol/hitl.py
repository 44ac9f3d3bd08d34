"""The answer 202 and the ``hitl`` object in it."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from assent.protocol.form import Form
from assent.protocol.review_types import ReviewType
from assent.protocol.scalars import CaseId, JsonObject, ServiceUrl, Text, Time
from assent.protocol.verification import VerificationPolicy
from assent.protocol.wire import OpenWire, Opt, Wire

SPEC_VERSION = "0.8"
DefaultAction = Literal["skip", "approve", "reject", "abort"]


class Context(OpenWire):
    """What the review page shows besides the prompt: anything, and perhaps a ``form``."""

    form: Opt[Form] = None


class Surface(OpenWire):
    """In which user interface format the page is made."""

    format: Opt[Text] = None
    version: Opt[Text] = None


class HitlObject(Wire):
    """One case, as a service describes it to an agent. Its addresses and tokens are in no ``repr``."""

    model_config = ConfigDict(
        json_schema_extra={
            "dependentRequired": {"submit_url": ["submit_token"], "submit_token": ["submit_url"]}
        },
    )

    spec_version: Literal["0.8"]
    case_id: CaseId
    review_url: ServiceUrl = Field(repr=False)
    poll_url: ServiceUrl
    type: ReviewType
    prompt: Annotated[Text, StringConstraints(max_length=500)]
    timeout: Opt[Text] = None
    default_action: Opt[DefaultAction] = None
    created_at: Time
    expires_at: Time
    callback_url: ServiceUrl | None = Field(default=None, repr=False)
    events_url: Opt[ServiceUrl] = None
    context: Opt[Context] = None
    reminder_at: Opt[Time | list[Time]] = None
    previous_case_id: Opt[CaseId] = None
    submit_url: Opt[ServiceUrl] = None
    submit_token: Opt[Annotated[Text, StringConstraints(min_length=32)]] = Field(default=None, repr=False)
    inline_actions: Opt[list[Text]] = None
    verification_policy: Opt[VerificationPolicy] = None
    surface: Opt[Surface] = None

    @model_validator(mode="after")
    def _token_with_address(self) -> Self:
        if (self.submit_url is None) != (self.submit_token is None):
            raise ValueError("submit_url and submit_token come together or not at all")
        return self

    @property
    def form(self) -> Form | None:
        """The form to fill in, where the case has one."""
        return None if self.context is None else self.context.form


class HumanInputRequired(OpenWire):
    """The body of an HTTP 202 that asks for a person. ``data`` is whatever the service adds to it."""

    status: Literal["human_input_required"]
    message: Opt[Text] = None
    data: Opt[JsonObject] = None
    hitl: HitlObject
