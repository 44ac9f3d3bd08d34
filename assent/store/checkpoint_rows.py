"""Checkpoints as plain values, on their way into a transaction and out of it."""

from __future__ import annotations

from typing import NamedTuple

STATES = ("pending", "resolving", "resolved")


class CheckpointRow(NamedTuple):
    """A checkpoint's columns, in the order in which they are read."""

    checkpoint_id: str
    agent_id: str
    thread_id: str | None
    body: str
    state: str
    claimed_by: str | None
    claimed_until: int | None
    retaken: int
    created_at: int
    updated_at: int
    write_id: int


class Holding(NamedTuple):
    """What a worker wants to do with a checkpoint, and in whose name."""

    checkpoint_id: str
    agent_id: str
    thread_id: str | None
    """None: whichever it is on."""
    by: str
    now: int
    write_id: int
    until: int = 0
    """How long the worker wants it, where that matters."""


class Page(NamedTuple):
    """Which checkpoints to list."""

    agent_id: str
    thread_id: str | None
    state: str | None
    """None, here and above: whichever it is."""
    limit: int
    after: tuple[int, str]
    """Created at and id of the last one of the page before."""
