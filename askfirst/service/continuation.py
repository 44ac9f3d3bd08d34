"""The continuation of an answered case: whether its thread was resumed, as pages and the API show it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from askfirst.clock import seconds
from askfirst.messages import JsonObject
from askfirst.service.case import Case, iso
from askfirst.store import continuations
from askfirst.store.engine import Engine
from askfirst.store.rows import ContinuationRow, decode_text

GoingOnState = Literal["due", "running", "failed", "done"]
_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_SOME_ERROR = "an error"


@dataclass(frozen=True, slots=True)
class GoingOn:
    """The state of a continuation: a thread that has to be resumed because a case was answered.

    Times are seconds since 1970 (UTC). ``error`` is only the type of the last error. Its text may hold secrets;
    operators see it with ``askfirst continuations``.
    """

    state: GoingOnState
    attempts: int
    error: str | None
    next_at: float | None
    """The time of the next attempt after a failure; None if there is none."""
    updated_at: float

    def wire(self) -> JsonObject:
        """The JSON object of the API."""
        return {
            "state": self.state,
            "attempts": self.attempts,
            "error": self.error,
            "next_at": None if self.next_at is None else iso(self.next_at),
            "updated_at": iso(self.updated_at),
        }


async def going_on(engine: Engine, case: Case) -> GoingOn | None:
    """The continuation of an ended case; None if the case is open, or no resumer is registered for its thread."""
    if not case.is_final or case.thread_id is None:
        return None
    row = await engine.read(partial(continuations.of_case, case.case_id))
    return None if row is None else _read(row)


def _read(row: ContinuationRow) -> GoingOn:
    failed = row.state == "failed"
    return GoingOn(
        state=cast(GoingOnState, row.state),
        attempts=row.attempts,
        error=_type_of(decode_text(row.error)) if failed else None,
        next_at=seconds(row.due_at) if failed and row.due_at is not None else None,
        updated_at=seconds(row.updated_at),
    )


def _type_of(error: str | None) -> str:
    """The exception type that an error's text begins with."""
    name = (error or "").partition(":")[0]
    return name if _TYPE.fullmatch(name) else _SOME_ERROR
