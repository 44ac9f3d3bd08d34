"""The kinds of reviews, and what a person may do in each."""

from collections.abc import Mapping
from typing import Annotated

from assent.protocol.scalars import OneOfOrCustom, Text

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "approval": ("approve", "edit", "reject"),
    "selection": ("select",),
    "input": ("submit",),
    "confirmation": ("confirm", "cancel"),
    "escalation": ("retry", "skip", "abort"),
}
"""The five review types, each with its actions."""

ReviewType = Annotated[Text, OneOfOrCustom(tuple(ACTIONS))]
"""One of the five types, or a service's own that begins with ``x-``."""


def actions_of(review_type: str) -> tuple[str, ...]:
    """What a person may do in a review of this type. One of a service's own is treated as input."""
    return ACTIONS.get(review_type, ACTIONS["input"])
