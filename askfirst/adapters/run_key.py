"""The key of the run of another framework that the running code belongs to, where that framework does not tell it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from askfirst.agent.context import Context, current


@contextmanager
def run_with(key: str) -> Generator[None]:
    """Within this, `run_key` is this key: for whatever the framework calls, in tasks and threads of its own too."""
    at = current.get()
    token = current.set(Context(at.session, at.turns, at.turn_at, at.asking, at.hearing, key))
    try:
        yield
    finally:
        current.reset(token)


def run_key() -> str | None:
    """The key of the run, or None outside of `run_with`."""
    return current.get().framework_run
