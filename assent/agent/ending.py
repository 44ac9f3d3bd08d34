"""How a conversation ends before its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Ending:
    """How a conversation ends that waits for people, and what they are asked with it."""

    status: Literal["aborted", "superseded"]
    why: str
    is_told: bool = False
    """Whether listeners are told that somebody chose to end it there."""


SUPERSEDED = Ending("superseded", "superseded by a newer prompt")
STOPPED = Ending("aborted", "the run was aborted")
