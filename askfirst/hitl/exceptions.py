"""The errors and signals of asking a person, under the names that the documentation uses."""

from askfirst.errors import (
    HitlAborted,
    HitlCancelled,
    HitlConcurrencyError,
    HitlControlException,
    HitlDetached,
    HitlDurabilityNotGuaranteed,
    HitlError,
    HitlInvalidAnswer,
    HitlInvalidRequest,
    HitlNoPendingRequest,
    HitlRequestPending,
    HitlStaleAnswer,
    HitlTimedOut,
)

__all__ = [
    "HitlAborted",
    "HitlCancelled",
    "HitlConcurrencyError",
    "HitlControlException",
    "HitlDetached",
    "HitlDurabilityNotGuaranteed",
    "HitlError",
    "HitlInvalidAnswer",
    "HitlInvalidRequest",
    "HitlNoPendingRequest",
    "HitlRequestPending",
    "HitlStaleAnswer",
    "HitlTimedOut",
]
