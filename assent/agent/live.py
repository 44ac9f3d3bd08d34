"""A thread as this process knows it: its transcript, who works on it, and the subagents under it."""

from __future__ import annotations

from typing import Self

from assent.agent.emitter import Emitter
from assent.agent.fold import is_finished, unresolved_calls
from assent.agent.host import Host
from assent.agent.inbox import Inbox
from assent.agent.journal import Journal
from assent.agent.run import Run, Thread
from assent.agent.spec import AgentSpec
from assent.agent.subagents import SubagentTool
from assent.channels import HitlChannel
from assent.checkpointer.base import Checkpointer, StoredThread
from assent.errors import LeaseHeld
from assent.ids import birth_of, child_thread_id
from assent.requests import StoredRequest


class LiveThread(Host):
    """One thread, of an agent or of a subagent.

    With a checkpointer the thread is loaded when it is first needed, and again whenever another worker may
    have been at it. A subagent's thread knows its ``parent`` and the call that it serves.
    """

    __slots__ = (
        "call_path",
        "fence",
        "held",
        "is_new",
        "loaded",
        "path",
        "policy",
        "principal",
        "run_by",
        "spec",
    )

    def __init__(
        self,
        spec: AgentSpec,
        thread: Thread,
        channel: HitlChannel | None,
        checkpointer: Checkpointer | None,
        *,
        is_new: bool,
        principal: str = "*",
        parent: Self | None = None,
        call_id: str = "",
    ) -> None:
        self.path: tuple[str, ...] = (spec.id,) if parent is None else (*parent.path, spec.id)
        self.call_path: tuple[str, ...] = () if parent is None else (*parent.call_path, call_id)
        emitter = Emitter(
            thread.thread_id, spec.onion.on_event, self.path, None if parent is None else parent.emitter
        )
        inbox = Inbox(spec, thread.thread_id, channel, checkpointer, shares=parent is not None)
        super().__init__(thread, channel, checkpointer, emitter, inbox, parent)
        self.spec = spec
        self.principal = principal
        self.policy = parent.policy if spec.policy is None and parent is not None else spec.policy
        self.fence = 0
        self.run_by: str | None = None
        """The agent whose run is the thread's latest, as far as the store knows."""
        self.held: LeaseHeld | None = None
        self.is_new = is_new
        self.loaded = is_new or checkpointer is None  # a new thread is nowhere to be loaded from

    async def load(self, *, fresh: bool = False) -> None:
        """Know the thread as the store does; ``fresh`` looks again even if nothing seems to have changed."""
        if self.checkpointer is None or (self.loaded and not fresh):
            return
        stored = await self.checkpointer.load(self.thread_id)
        heard = {} if stored is None else self._heard_here(stored)
        self.thread = Thread(self.thread_id, stored.messages if stored is not None else ())
        self.fence = stored.fence if stored is not None else 0
        self.run_id = stored.run.run_id if stored is not None and stored.run is not None else None
        self.run_by = stored.run.agent_id if stored is not None and stored.run is not None else None
        self.held = None
        if stored is not None:
            self.thread.effects.update(stored.effects)
            self.thread.ledger.update(stored.effects)
            self.thread.requests.update({**heard, **stored.requests})
            if self.children:
                self._keep_children()
            if stored.is_leased:
                self.held = LeaseHeld(self.thread_id, stored.lease_owner or "", stored.lease_until)
        self.loaded = True

    def _heard_here(self, stored: StoredThread) -> dict[str, StoredRequest]:
        """What people have answered through a channel that is in no store, if the thread has not moved."""
        known, channel = self.thread.requests, self.channel
        if not known or channel is None or channel.checkpointer is not None:
            return {}
        is_same = birth_of(self.fence) == birth_of(stored.fence)  # and no other thread of the same name
        if not is_same or len(stored.messages) != len(self.thread.messages):
            return {}
        return {question_id: it for question_id, it in known.items() if it.status != "pending"}

    def _keep_children(self) -> None:
        """Know those that work for open calls; how they stand by now, each has to look up."""
        calls = {call.id for call in unresolved_calls(self.thread.messages)}
        for call_id in [it for it in self.children if it not in calls]:
            del self.children[call_id]
        for child in self.children.values():
            child.loaded = False

    def child(self, tool: SubagentTool, call_id: str) -> Self:
        """The thread of the subagent that a call runs."""
        if call_id not in self.children:
            thread = Thread(child_thread_id(self.thread_id, call_id))
            self.children[call_id] = type(self)(
                tool.agent,
                thread,
                tool.channel or self.channel,
                self.checkpointer,
                is_new=False,
                principal=self.principal,
                parent=self,
                call_id=call_id,
            )
        return self.children[call_id]

    def apart(self) -> Self:
        """The thread to be looked at while a run may go on with it: what is loaded there changes nothing here.

        Without a store there is nothing to load, and this is the thread itself.
        """
        if self.checkpointer is None:
            return self
        return type(self)(
            self.spec,
            Thread(self.thread_id),
            self.channel,
            self.checkpointer,
            is_new=False,
            principal=self.principal,
        )

    @property
    def is_under_way(self) -> bool:
        """Whether something was begun here, as far as is known, and is not done."""
        return bool(self.thread.messages) and not is_finished(self.thread.messages)

    def new_run(self, run_id: str, journal: Journal | None = None) -> Run:
        """A run on the thread as it is known; with a ``journal`` that may hold it already."""
        is_recorded, self.run_id = run_id == self.run_id, run_id
        caller = None if self.parent is None else self.parent.current_run
        if self.checkpointer is not None and journal is None:
            parent = None if self.parent is None else self.parent.thread_id
            working = None if caller is None else caller.journal
            journal = Journal(self.checkpointer, self.thread_id, self.fence, parent, working)
        return Run(
            self.spec,
            self.thread,
            self.emitter,
            run_id,
            self.channel,
            journal,
            path=self.path,
            call_path=self.call_path,
            principal=self.principal,
            policy=self.policy,
            is_recorded=is_recorded,
            caller=caller,
        )
