"""A thread as this process knows it: loaded from its store, and stale once another worker may have written to it."""

from __future__ import annotations

from typing import Literal

from askfirst.agent.thread import Thread, is_finished
from askfirst.checkpointer.base import Checkpointer, StoredThread
from askfirst.errors import LeaseHeld
from askfirst.ids import birth_of
from askfirst.requests import StoredRequest

Knowledge = Literal["new", "known", "stale"]


class LiveThread:
    """The known state of one thread, of an agent or of a subagent.

    What is known has a ``state``::

        new ----first step written----> known <----load()---- stale
         |                               |                      ^
         +-----------forget()------------+------forget()--------+

    ``new``: nothing is stored under the thread's id. ``known``: the thread is as it was last loaded or written here.
    ``stale``: another worker may have written to it, so it is loaded before it is used. Without a store no other
    worker can write to it, so that it is never stale.
    """

    __slots__ = (
        "checkpointer",
        "fence",
        "held",
        "run_by",
        "run_id",
        "state",
        "thread",
        "thread_id",
        "untold",
    )

    def __init__(self, thread: Thread, checkpointer: Checkpointer | None, *, is_new: bool) -> None:
        self.thread_id = thread.thread_id
        self.thread = thread
        self.checkpointer = checkpointer
        self.fence = 0
        """The thread's fence when it was last loaded or written."""
        self.run_id: str | None = None
        """The thread's latest run."""
        self.run_by: str | None = None
        """The agent whose run that is, as far as the store knows."""
        self.held: LeaseHeld | None = None
        """Set if another worker held the lease when the thread was loaded."""
        self.untold: tuple[str, ...] = ()
        """The ids of requests that were settled while no wait was open for them; listeners are told next."""
        self.state: Knowledge = "new" if is_new else "stale"
        if not is_new:
            self.forget()

    @property
    def is_under_way(self) -> bool:
        """Whether the thread, as known here, has a run that has not ended."""
        return bool(self.thread.messages) and not is_finished(self.thread.messages)

    def forget(self) -> None:
        """Mark the thread as stale, so that it is loaded before its next use: another worker may write to it now."""
        self.state = "known" if self.checkpointer is None else "stale"

    async def load(self, *, fresh: bool = False, keeps_answers: bool = False) -> bool:
        """Load the thread if it is stale, or in any case if ``fresh``; returns whether it was loaded.

        ``keeps_answers`` says that the agent's channel keeps its requests outside the store: then answers given
        through it are kept, unless the thread was written to.
        """
        if self.checkpointer is None or (self.state != "stale" and not fresh):
            return False
        stored = await self.checkpointer.load(self.thread_id)
        heard = {} if stored is None or not keeps_answers else self._heard(stored)
        self.thread = Thread(self.thread_id, stored.messages if stored is not None else ())
        self.fence = stored.fence if stored is not None else 0
        self.run_id = stored.run.run_id if stored is not None and stored.run is not None else None
        self.run_by = stored.run.agent_id if stored is not None and stored.run is not None else None
        self.held = None
        if stored is not None:
            self.thread.effects.update(stored.effects)
            self.thread.ledger.update(stored.effects)
            self.thread.requests.update({**heard, **stored.requests})
            if stored.is_leased:
                self.held = LeaseHeld(self.thread_id, stored.lease_owner or "", stored.lease_until)
        self.state = "known"
        return True

    def _heard(self, stored: StoredThread) -> dict[str, StoredRequest]:
        """The settled requests that only this process knows; none if the thread was written to since."""
        known = self.thread.requests
        is_same = birth_of(self.fence) == birth_of(stored.fence)  # it was not deleted and created again
        if not known or not is_same or len(stored.messages) != len(self.thread.messages):
            return {}
        return {question_id: it for question_id, it in known.items() if it.status != "pending"}
