"""The key of the current run of another framework, for frameworks that do not pass it to tools."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from askfirst.agent.context import Context, current


@contextmanager
def using_run_key(key: str) -> Generator[None]:
    """Make `run_key` return this key within the ``with`` block, and in all tasks that the framework starts there."""
    at = current.get()
    token = current.set(Context(at.session, at.turns, at.turn_at, at.asking, at.hearing, key))
    try:
        yield
    finally:
        current.reset(token)


def run_key() -> str | None:
    """The key of the run, or None outside of `using_run_key`."""
    return current.get().framework_run
