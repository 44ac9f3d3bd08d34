"""Named places around the commits, where a test may make a process die.

Each commit has a point right after it, and one named ``"before:..."`` right before. A step's is the first of
these that applies:

    effect.started      tool bodies are about to begin
    effect.ended        their results are in
    request.opened      a person is asked
    run.ended           the run has come to rest
    prompt              a user message was appended
    message             other messages were
    step                none of these, such as a lease given back

and outside of steps ``request.settled``: an answer, a cancel or a time-out.
"""

from __future__ import annotations

from collections.abc import Callable

POINTS = (
    "effect.started",
    "effect.ended",
    "request.opened",
    "run.ended",
    "prompt",
    "message",
    "step",
    "request.settled",
)
"""The points after the commits; each has one before it."""

hook: Callable[[str], None] | None = None
"""Called with a point's name as it is reached; set by `assent.hitl.testing`, None in production."""


def reached(point: str) -> None:
    """Say that a point is reached, such as ``"effect.started"`` once that is committed."""
    if hook is not None:
        hook(point)
