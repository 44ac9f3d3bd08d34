"""What the operator of a service allows those who open cases: how they may be answered, and what they are handed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from assent.errors import InvalidDuration, InvalidReview, ServiceError
from assent.protocol import TokenScope, iso_duration, parse_duration
from assent.service.review import ReviewRequest

LinkWay = Literal["caller", "service"]
"""Who hands the link to the person: whoever opened the case, or the service itself."""
LINK_DAYS = 7.0
"""How long a link lives unless the operator says otherwise: the protocol's longest."""
_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Terms:
    """The operator's choices. As they are here, whoever asks has no power to approve but the link."""

    inline: bool = False
    """Whether callers get a submit token, with which they may carry answers from a messenger."""
    links: LinkWay = "caller"
    least_timeout: float = 0.0
    """Seconds that a case is open at least."""
    allow_default_approve: bool = False
    """Whether a case may count as approved when nobody has answered."""
    link_days: float = LINK_DAYS
    """Days that a link, and a submit token, is good for."""

    def __post_init__(self) -> None:
        """Raise `ServiceError` for choices that are none."""
        if self.links not in ("caller", "service"):
            raise ServiceError(f'links is "caller" or "service", not {self.links!r}')
        if not (0 < self.link_days <= 36_500):
            raise ServiceError(f"link_days is more than 0 and at most 36500, not {self.link_days!r}")
        if not (0 <= self.least_timeout < math.inf):
            raise ServiceError(f"least_timeout is a length of time, not {self.least_timeout!r}")

    @property
    def scopes(self) -> tuple[TokenScope, ...]:
        """The tokens that whoever opens a case is handed."""
        review: tuple[TokenScope, ...] = ("review",) if self.links == "caller" else ()
        submit: tuple[TokenScope, ...] = ("submit",) if self.inline else ()
        return review + submit

    def link_end(self, begin: int) -> int:
        """When a link ends that was made then; both in milliseconds since 1970."""
        return begin + round(self.link_days * _DAY)

    def check(self, review: ReviewRequest) -> None:
        """Raise `InvalidReview` for a case that the operator does not allow."""
        faults: dict[str, str] = {}
        if review.default_action == "approve" and not self.allow_default_approve:
            faults["default_action"] = (
                "is not approve here, for then silence would approve; whoever runs the service can allow it "
                "(allow_default_approve)"
            )
        if review.seconds < self.least_timeout:
            least = iso_duration(math.ceil(self.least_timeout))
            faults["timeout"] = (
                f"is at least {least} here; whoever runs the service has set that (least_timeout)"
            )
        if faults:
            raise InvalidReview(faults)


def seconds_of(least_timeout: str | float | None) -> float:
    """A least time-out in seconds, from those or from a text like ``"5m"``; raises `ServiceError`."""
    if least_timeout is None:
        return 0.0
    if not isinstance(least_timeout, str):
        return float(least_timeout)
    try:
        return float(parse_duration(least_timeout))
    except InvalidDuration as error:
        raise ServiceError(f"least_timeout: {error}") from None
