"""The audit row for a body that ended after its grant was lost."""

from __future__ import annotations

from functools import partial

from askfirst.account import os_account
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import to_milliseconds
from askfirst.concurrency import finish
from askfirst.gate.key_state import CALL
from askfirst.gate.outcomes import Stored
from askfirst.store import audit


async def record_late(store: Checkpointer, thread_id: str, ended: Stored, fence: int, now: float) -> None:
    """Write that the end of a body was refused. A store without an audit trail, such as memory, gets no row."""
    if not isinstance(store, SqlCheckpointer):
        return
    detail = {
        "question_id": CALL,
        "ended": "finished" if ended.error is None else "failed",
        "fence": fence,
    }
    entry = audit.Entry("effect.late", thread_id, os_account(), to_milliseconds(now), detail)
    await finish(store.engine.write(partial(audit.append, [entry])))
