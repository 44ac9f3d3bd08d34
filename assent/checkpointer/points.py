"""Named places around the commits, where a test may make a process die."""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None
"""Called with a point's name as it is reached; set by `assent.hitl.testing`, None in production."""


def reached(point: str) -> None:
    """Say that a point is reached, such as ``"effect.started"`` once that is committed."""
    if hook is not None:
        hook(point)
