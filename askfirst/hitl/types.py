"""What a person is asked and may answer, under the names that the documentation uses."""

from askfirst.channels import HitlChannel
from askfirst.requests import (
    Answers,
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
)

__all__ = [
    "Answers",
    "ApproveAnswer",
    "ApproveRequest",
    "AskRequest",
    "ConfirmRequest",
    "EscalateAnswer",
    "EscalateRequest",
    "HitlChannel",
    "HitlPayload",
    "HitlRequest",
    "Option",
    "Question",
]
