"""Workers: they continue threads whose requests were settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from askfirst.lazy import exports

if TYPE_CHECKING:
    from askfirst.workers.attempt import run_continuation
    from askfirst.workers.continuations import Continuation, Continuations, ContinuationState
    from askfirst.workers.outbox import DueEvent, Outbox, read_due_event
    from askfirst.workers.procrastinate_engine import ProcrastinateWorker
    from askfirst.workers.resumers import Resumer, agent_resumer
    from askfirst.workers.worker import Worker

_HOMES = {
    "Continuation": "continuations",
    "ContinuationState": "continuations",
    "Continuations": "continuations",
    "DueEvent": "outbox",
    "Outbox": "outbox",
    "ProcrastinateWorker": "procrastinate_engine",
    "Resumer": "resumers",
    "Worker": "worker",
    "agent_resumer": "resumers",
    "read_due_event": "outbox",
    "run_continuation": "attempt",
}

__all__ = [
    "Continuation",
    "ContinuationState",
    "Continuations",
    "DueEvent",
    "Outbox",
    "ProcrastinateWorker",
    "Resumer",
    "Worker",
    "agent_resumer",
    "read_due_event",
    "run_continuation",
]

__getattr__, __dir__ = exports(globals(), _HOMES)
