"""Workers: what was answered goes on by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from askfirst.lazy import exports

if TYPE_CHECKING:
    from askfirst.workers.continuations import Continuation, Continuations, ContinuationState
    from askfirst.workers.resumers import Resumer, agent_resumer
    from askfirst.workers.worker import Worker

_HOMES = {
    "Continuation": "continuations",
    "ContinuationState": "continuations",
    "Continuations": "continuations",
    "Resumer": "resumers",
    "Worker": "worker",
    "agent_resumer": "resumers",
}

__all__ = [
    "Continuation",
    "ContinuationState",
    "Continuations",
    "Resumer",
    "Worker",
    "agent_resumer",
]

__getattr__, __dir__ = exports(globals(), _HOMES)
