"""The state of another framework's paused run, stored in the gate's store, so that any process can continue the run.

A framework's state is a JSON object. It is stored on a separate thread as an append-only list of messages. Each
message holds the changes since the message before; applied in order, they give the state. So a pause writes only what
is new, and encryption at rest covers the state like every message. The thread's fence refuses a writer that has not
read what another process wrote.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import from_json, to_json

from askfirst.checkpointer.base import Checkpointer, RunRecord, Step
from askfirst.errors import HitlInvalidRequest, LeaseHeld, LeaseLost, ResumeFailed
from askfirst.messages import JsonObject, UserMessage
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

MOST_BYTES = 8_000_000
"""The largest state, as JSON. A run with a larger state is not stored, and nobody is asked about its calls."""
_PREFIX = "kept:"
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class KeptState:
    """A run's state as this process last read or wrote it."""

    thread_id: str
    state: JsonObject | None = None
    """None if nothing was stored."""
    fence: int = 0


async def load(store: Checkpointer, framework: str, run: str) -> KeptState:
    """The stored state of a framework's run, whichever process wrote it."""
    thread_id = kept_thread(framework, run)
    stored = await store.load(thread_id)
    if stored is None:
        return KeptState(thread_id)
    state: JsonObject = {}
    for message in stored.messages:
        if isinstance(message, UserMessage):
            state = _applied(state, from_json(message.text))
    return KeptState(thread_id, state, stored.fence)


async def keep(store: Checkpointer, known: KeptState, state: JsonObject) -> KeptState | None:
    """Append the changes of a state. Returns None, and writes nothing, if another process wrote meanwhile.

    Raises `HitlInvalidRequest` for a state that is larger than `MOST_BYTES`.
    """
    size = len(to_json(state))
    if size > MOST_BYTES:
        raise HitlInvalidRequest(
            f"the state of this run has {size:,} bytes, and at most {MOST_BYTES:,} are kept, so nobody was asked; "
            "shorten the conversation"
        )
    change = _changes(known.state or {}, state)
    if not change and known.state is not None:
        return known
    step = Step("kept", [UserMessage(to_json(change).decode())], run=RunRecord("kept"), release=True)
    try:
        fence = await store.commit(known.thread_id, step, fence=known.fence, acquire=True)
    except (LeaseLost, LeaseHeld):
        return None
    return replace(known, state=state, fence=fence)


@dataclass
class KeptRun:
    """A framework's run in this process: its stored state, and whether another process has continued the run."""

    store: Checkpointer
    framework: str
    run: str
    is_behind: bool = False
    """Whether another process has written since this process read. Then this process stores nothing more."""
    _known: KeptState | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def load(self) -> JsonObject | None:
        """Read the stored state; None if nothing was stored."""
        self._known, self.is_behind = await load(self.store, self.framework, self.run), False
        return self._known.state

    async def state(self) -> JsonObject | None:
        """The stored state as this process knows it; read from the store at the first call only."""
        return await self.load() if self._known is None else self._known.state

    async def keep(self, state: JsonObject) -> bool:
        """Append the changes of a state; False if another process has continued the run. Raises as `keep` does."""
        async with self._lock:
            known = self._known or await load(self.store, self.framework, self.run)
            if not self.is_behind:
                kept = await keep(self.store, known, state)
                self.is_behind, self._known = kept is None, kept or known
            return not self.is_behind


def kept_resumer(framework: str, go_on: Callable[[KeptRun], Awaitable[object]]) -> Resumer:
    """A resumer for a framework whose runs' states are stored by this module: ``go_on`` continues a stored run."""

    async def resume(continuation: Continuation) -> object:
        if continuation.checkpointer is None:
            raise ResumeFailed("the continuation has no checkpointer, so its run cannot be read")
        run = KeptRun(continuation.checkpointer, framework, continuation.thread_id)
        if await run.load() is None:
            raise ResumeFailed(f"the store has no state of the run {run.run!r}")
        return await go_on(run)

    return resume


def kept_thread(framework: str, run: str) -> str:
    """The id of the thread with a run's state; `Checkpointer.delete` of this thread deletes the state."""
    name = f"{framework}:{run}"
    if len(name) <= _LONGEST and name.isascii() and name.isprintable() and not name.endswith(" "):
        return f"{_PREFIX}{name}"
    return f"{_PREFIX}sha256:{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _changes(old: JsonObject, new: JsonObject) -> dict[str, Any]:
    """The changes from one state to the next: ``grown`` (for each changed list, how many items stay and the new items
    after them), ``put`` (fields that are set) and ``gone`` (fields that are removed)."""
    grown: dict[str, Any] = {}
    put: dict[str, Any] = {}
    for name, value in new.items():
        before = old.get(name)
        if name in old and before == value:
            continue
        if isinstance(value, list) and isinstance(before, list):
            same = 0
            while same < min(len(before), len(value)) and before[same] == value[same]:
                same += 1
            grown[name] = [same, value[same:]]
        else:
            put[name] = value
    gone = [name for name in old if name not in new]
    return {name: it for name, it in (("grown", grown), ("put", put), ("gone", gone)) if it}


def _applied(old: JsonObject, change: dict[str, Any]) -> JsonObject:
    """The next state: ``old`` with the changes that `_changes` found."""
    state: JsonObject = {name: it for name, it in old.items() if name not in change.get("gone", ())}
    state.update(change.get("put", {}))
    for name, (same, added) in change.get("grown", {}).items():
        before = state[name]
        state[name] = [*before[:same], *added] if isinstance(before, list) else added
    return state
