"""Proofs that a person decided: what a service asks for, what it was shown, what it found."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from askfirst.protocol.wire import Flag, JsonObject, OneOfOrCustom, OpenWire, Opt, Positive, Text, Time, Wire

ProofType = Annotated[Text, OneOfOrCustom(("proof_of_human",))]
PresentationFormat = Annotated[Text, OneOfOrCustom(("provider_opaque", "jwt", "zkp", "attestation"))]
Assurance = Literal["low", "medium", "high"]
SubmissionMode = Literal["browser_submit", "inline_submit"]
VerificationMode = Literal["optional", "required", "step_up"]
Fallback = Literal["browser_review", "reject"]


def _distinct(values: list[SubmissionMode]) -> list[SubmissionMode]:
    if len(set(values)) < len(values):
        raise ValueError("must not name one twice")
    return values


# What a service asks for.


class EvidenceRequirement(Wire):
    """One proof that is asked for."""

    proof_type: ProofType
    provider: Opt[Text] = None
    min_assurance: Opt[Assurance] = None
    presentation_formats: Opt[list[PresentationFormat]] = None


class RequirementOption(Wire):
    """Proofs that are all needed together."""

    all_of: list[EvidenceRequirement] = Field(min_length=1)


class Requirements(Wire):
    """Options of which any one is enough."""

    any_of: list[RequirementOption] = Field(min_length=1)


class PolicyBinding(Wire):
    """What a proof must be bound to, and for how long it counts."""

    case_id: Flag
    action: Flag
    challenge: Opt[Text] = Field(default=None, repr=False)
    freshness_seconds: Positive
    expires_at: Opt[Time] = None
    single_use: Flag


class PolicyFallback(Wire):
    """What happens when a proof is missing or no good."""

    on_missing: Fallback
    on_invalid: Fallback


class VerificationPolicy(Wire):
    """Which proofs a service asks for, and for which way of answering."""

    mode: VerificationMode
    required_for: Annotated[
        list[SubmissionMode],
        AfterValidator(_distinct),
        Field(min_length=1, json_schema_extra={"uniqueItems": True}),
    ]
    requirements: Requirements
    binding: PolicyBinding
    fallback: PolicyFallback


# What it was shown.


class EvidenceBinding(OpenWire):
    """What a proof says it is bound to."""

    case_id: Opt[Text] = None
    action: Opt[Text] = None
    challenge: Opt[Text] = Field(default=None, repr=False)


class VerificationEvidence(Wire):
    """A proof on its way to the service; ``presentation`` is opaque to everyone else and in no ``repr``."""

    proof_type: ProofType
    provider: Text
    format: PresentationFormat
    presentation: Text | JsonObject = Field(repr=False)
    binding: EvidenceBinding


# What it found.


class VerifiedEvidence(Wire):
    """A proof that was accepted, without the proof itself."""

    proof_type: Text
    provider: Text
    assurance_level: Opt[Assurance] = None
    bound_to_case: Opt[Flag] = None
    bound_to_action: Opt[Flag] = None
    fresh: Opt[Flag] = None
    single_use_enforced: Opt[Flag] = None
    verified_at: Opt[Time] = None


class VerificationResult(Wire):
    """Whether the policy was satisfied, and by what."""

    satisfied: Flag
    verified_evidence: Opt[list[VerifiedEvidence]] = None
    missing_requirements: Opt[list[Text]] = None


class SubmissionOrigin(Wire):
    """Who pressed the button, as the messenger knows them."""

    platform: Text
    platform_user_id: Text
    display_name: Opt[Text] = None


class SubmissionContext(Wire):
    """How an answer reached the service."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"mode": {"const": "inline_submit"}}},
            "then": {"required": ["submitted_via", "submitted_by"]},
        },
    )

    mode: SubmissionMode
    submitted_via: Opt[Text] = None
    submitted_by: Opt[SubmissionOrigin] = None
    verification_result: Opt[VerificationResult] = None

    @model_validator(mode="after")
    def _inline_is_attributed(self) -> Self:
        if self.mode == "inline_submit" and (self.submitted_via is None or self.submitted_by is None):
            raise ValueError("an inline submit names submitted_via and submitted_by")
        return self
