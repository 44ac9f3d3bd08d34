"""The 202 response and its hitl object, in every version of the protocol."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import from_json

from askfirst.protocol.case import ReviewType
from askfirst.protocol.discovery import Discovery
from askfirst.protocol.form import Form
from askfirst.protocol.verification import VerificationPolicy
from askfirst.protocol.wire import (
    CaseId,
    JsonObject,
    OpenWire,
    Opt,
    ServiceUrl,
    Text,
    Time,
    Wire,
    json_digest,
)

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


def shown_digest(*, type: str, prompt: str, context: Mapping[str, Any] | None) -> str:
    """SHA-256 over what a service was asked to show, as its hitl object tells it."""
    return json_digest({"type": type, "prompt": prompt, "context": context or {}}, "context")


# Objects of earlier versions of the protocol, read as those of this one.


READABLE_VERSIONS = ("0.5", "0.6", "0.7", SPEC_VERSION)
"""From 0.5 on, versions only added fields; what is there means the same."""


def read_202(data: bytes | str | Mapping[str, Any]) -> HumanInputRequired:
    """The body of a 202, of any readable version, as one of this version.

    Raises `InvalidProtocolObject`: also for a field that this version does not know, whatever it meant then.
    """
    return HumanInputRequired.read(_raised(data, "hitl"))


def read_discovery(data: bytes | str | Mapping[str, Any]) -> Discovery:
    """A discovery document, of any readable version, as one of this version; see `read_202`."""
    return Discovery.read(_raised(data, "hitl_protocol"))


def _raised(data: bytes | str | Mapping[str, Any], name: str) -> bytes | str | Mapping[str, Any]:
    """The same object with this version's number; malformed values are left for the reader to refuse."""
    if isinstance(data, bytes | str):
        try:
            data = cast("Mapping[str, Any]", from_json(data, allow_inf_nan=False))
        except ValueError:
            return data
    inner = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(inner, Mapping):
        return data
    facts = cast("Mapping[str, Any]", inner)
    if facts.get("spec_version") not in READABLE_VERSIONS:
        return data
    return {**data, name: {**facts, "spec_version": SPEC_VERSION}}
