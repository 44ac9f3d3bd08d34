"""The outcomes of a call at the gate, and the states of a body in its ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from askfirst.messages import JsonObject
from askfirst.requests import StoredRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """The call ran, now or before, and this is its result."""

    result: T


# What the methods for adapters return.


@dataclass(frozen=True, slots=True)
class Approved:
    """The call may run with these arguments: as they were asked about, or as a person edited them."""

    args: JsonObject
    by: str | None = None
    is_edited: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The call does not run."""

    reason: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """The body may start, once. ``idempotency_key`` is the same at every ``attempt``."""

    idempotency_key: str
    attempt: int
    edited: JsonObject | None = None
    """Other arguments that a person gave for this attempt, if any."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The body has run. ``result`` is what was stored of it; see `Stored`."""

    result: Stored


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The body was begun, and its end is unknown: a person is asked."""

    request: StoredRequest

    @property
    def question_id(self) -> str:
        """The id of the request that asks what to do."""
        return self.request.question_id


@dataclass(frozen=True, slots=True)
class Running:
    """Another process is running the body."""


@dataclass(frozen=True, slots=True)
class Stored:
    """How a body ended: with a ``value`` (JSON), with an ``error``, or with a value that could not be kept."""

    value: Any = None
    error: str | None = None
    digest: str | None = None
    """SHA-256 of a result that was not kept."""
    problem: str | None = None
    """Why the result was not kept."""
