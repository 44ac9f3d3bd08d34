"""Answers posted to a service, and its responses."""

from typing import Annotated, Literal

from pydantic import Field

from askfirst.protocol.verification import SubmissionOrigin, VerificationEvidence
from askfirst.protocol.wire import JsonObject, OneOfOrCustom, OpenWire, Opt, Text, Time, Uri, Wire

SubmittedVia = Annotated[
    Text,
    OneOfOrCustom(
        (
            "telegram_inline_button",
            "slack_block_action",
            "discord_component",
            "whatsapp_reply_button",
            "teams_adaptive_card",
        )
    ),
]
Platform = Annotated[Text, OneOfOrCustom(("telegram", "slack", "discord", "whatsapp", "teams"))]
InlineRefusal = Literal["action_not_inline", "verification_required", "verification_failed"]


class SubmittedBy(SubmissionOrigin):
    """Who pressed the button: a user of one of the known messengers, or of an ``x-`` one."""

    platform: Platform


class SubmitRequest(Wire):
    """An answer that an agent carries from a messenger's button to ``submit_url``."""

    action: Text
    data: Opt[JsonObject] = Field(default=None, repr=False)
    submitted_via: SubmittedVia
    submitted_by: SubmittedBy
    verification_evidence: Opt[list[VerificationEvidence]] = None


class ReviewSubmission(OpenWire):
    """An answer from the review page."""

    action: Text
    data: Opt[JsonObject] = Field(default=None, repr=False)


class SubmissionAccepted(OpenWire):
    """The answer counts; ``next_case_id`` where it began another round."""

    status: Literal["completed"]
    case_id: Text
    completed_at: Opt[Time] = None
    next_case_id: Opt[Text] = None


class ErrorBody(OpenWire):
    """What a service says when it refuses: a code such as ``duplicate_submission``, and a sentence."""

    error: Text
    message: Text


class InlineSubmitRejected(OpenWire):
    """A refusal with 403: the person has to go to the review page."""

    error: InlineRefusal
    message: Text
    case_id: Text
    review_url: Opt[Uri] = Field(default=None, repr=False)
