"""A state machine: processes with gates, a person, a clock and crashes, against a model of plain dictionaries.

Each process has a separate checkpointer and gate on one SQLite file. A process that crashes is replaced. Its lease
stays and lapses by the clock. A process that stands still renews no lease; when it wakes, it still believes in its
grants.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kit.patience import PATIENCE

from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import (
    GrantLost,
    HitlError,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    KeyConflict,
    NotApproved,
)
from askfirst.gate.action import Action
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Approved, Finished, Granted, InDoubt, Refused, Running
from askfirst.hitl.testing import FakeClock

T = TypeVar("T")
LEASE = 30.0
TIMEOUT = 100.0
SHOWN = {"cents": 100}
EDITED = {"cents": 1}
ACTIONS = {
    "once": Action(tool="pay", args=SHOWN, timeout=TIMEOUT),
    "patient": Action(tool="pay", args=SHOWN),
    "idempotent": Action(tool="pay", args=SHOWN, effect="idempotent", timeout=TIMEOUT),
    "allowed": Action(tool="pay", args=SHOWN, requires_approval=False),
}
KEYS = st.sampled_from(sorted(ACTIONS))
WHICH = st.integers(0, 1)
SAID = st.sampled_from(["approve", "edit", "deny", "cancelled"])
SEEN: Counter[Any] = Counter()
"""What came of each verb, over all runs."""


@dataclass
class Key:
    """A key, as the model has it."""

    opened_at: float | None = None
    decision: str | None = None
    """None while it is open; then approve, edit, deny, cancelled or timed out."""
    attempt: int = 0
    holder: tuple[int, int] | None = None
    """The process (its place and its life) that has the grant, and whose lease has not been taken over."""
    leased_until: float = 0.0
    doubt: str | None = None
    """What a person says about the latest attempt: open, retry, skip, cancelled."""
    result: dict[str, Any] | None = None
    edited: dict[str, int] | None = None
    """The arguments that a person gave for another attempt."""


@dataclass
class Process:
    """A process: a checkpointer and a gate. ``life`` tells it from the process that it replaced."""

    gate: Gate
    store: SQLiteCheckpointer
    life: int
    opened: set[str] = field(default_factory=set[str])
    grants: dict[str, int] = field(default_factory=dict[str, int])
    """The attempt of each grant that the process believes to have."""


@dataclass
class World:
    """What all examples of a run share: a file and an event loop."""

    path: Path
    runner: asyncio.Runner
    examples: Any = field(default_factory=lambda: count(1))


class GateMachine(RuleBasedStateMachine):
    """Each rule does one thing in a process and in the model, and compares the results."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.example = next(self.world.examples)
        self.clock = FakeClock()
        self.keys = {name: Key() for name in ACTIONS}
        self.lives = 0
        self.processes = [self.do(self._started()) for _ in range(2)]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.world.runner.run(asyncio.wait_for(work, PATIENCE))

    def mine(self, name: str) -> str:
        """A key that no other example uses."""
        return f"{name}-{self.example}"

    async def _started(self) -> Process:
        self.lives += 1
        store = SQLiteCheckpointer(self.world.path, lease_seconds=LEASE, clock=self.clock)
        await store.__aenter__()
        return Process(Gate(store, clock=self.clock), store, self.lives)

    # What the model expects.

    @property
    def now(self) -> float:
        return self.clock.now()

    def overdue(self, key: Key, action: Action) -> bool:
        is_open = key.opened_at is not None and key.decision is None and action.timeout is not None
        return is_open and self.now >= (key.opened_at or 0.0) + (action.timeout or 0.0)

    def leased(self, key: Key) -> bool:
        return key.holder is not None and key.leased_until > self.now

    def standing(self, key: Key) -> str:
        if key.result is not None:
            return "done"
        if key.attempt == 0:
            return "open"
        return "running" if self.leased(key) else "in doubt"

    def approved_args(self, name: str) -> dict[str, int] | None:
        key = self.keys[name]
        if not ACTIONS[name].requires_approval:
            return SHOWN
        return {"approve": SHOWN, "edit": EDITED}.get(key.decision or "")

    def expected_begin(self, name: str, args: dict[str, int]) -> Any:
        """What `begin` returns or raises, by the model."""
        key, stands = self.keys[name], self.standing(self.keys[name])
        if stands == "done":
            return Finished
        if stands == "running":
            return Running
        if args != self.approved_args(name):
            return NotApproved
        if stands == "open":
            return Granted
        if ACTIONS[name].effect == "idempotent":
            return Granted
        if key.doubt in ("skip", "cancelled"):
            return Refused
        return Granted if key.doubt == "retry" else InDoubt

    # Processes.

    @rule(which=WHICH, name=KEYS)
    def open(self, which: int, name: str) -> None:
        process, key, action = self.processes[which], self.keys[name], ACTIONS[name]
        decision = self.do(process.gate.open(self.mine(name), action))
        process.opened.add(name)
        if not action.requires_approval:
            assert decision == Approved(SHOWN)
            return
        if key.opened_at is None:
            key.opened_at = self.now
        self.check_decision(key, decision)

    @rule(which=WHICH, name=KEYS)
    def decision(self, which: int, name: str) -> None:
        process = self.processes[which]
        decision = self.do(process.gate.decision(self.mine(name)))
        if not ACTIONS[name].requires_approval:
            assert decision == (Approved(SHOWN) if name in process.opened else None)
            return
        self.check_decision(self.keys[name], decision)

    def check_decision(self, key: Key, decision: Any) -> None:
        SEEN["decision", key.decision] += 1
        match key.decision:
            case None:
                assert decision is None
            case "approve":
                assert decision == Approved(SHOWN, "ann")
            case "edit":
                assert decision == Approved(EDITED, "ann", is_edited=True)
            case _:
                assert isinstance(decision, Refused)

    @rule(which=WHICH, name=KEYS)
    def open_something_else(self, which: int, name: str) -> None:
        """A key stands for one call: another call under it raises `KeyConflict`."""
        key = self.keys[name]
        if key.opened_at is None and key.attempt == 0:
            return
        other = Action(tool="pay", args={"cents": 7}, timeout=TIMEOUT)
        with pytest.raises(KeyConflict):
            self.do(self.processes[which].gate.open(self.mine(name), other))
        self.processes[which].opened.discard(name)
        self.processes[which].gate.ledger._actions.pop(self.mine(name), None)

    @rule(which=WHICH, name=KEYS, args=st.sampled_from([SHOWN, SHOWN, SHOWN, EDITED, EDITED, {"cents": 7}]))
    def begin(self, which: int, name: str, args: dict[str, int]) -> None:
        self._begin(which, name, args)

    @rule(which=WHICH, name=KEYS, said=SAID)
    def run(self, which: int, name: str, said: str) -> None:
        """Open a call, have it approved if nobody has decided, and begin with the approved arguments, as an adapter
        does."""
        self.open(which, name)
        if self.keys[name].decision is None and ACTIONS[name].requires_approval:
            self.settle(name, said, "retry")
        args = self.approved_args(name)
        if args is not None:
            self._begin(which, name, args)

    @precondition(lambda self: any(key.attempt and key.result is None for key in self.keys.values()))
    @rule(data=st.data(), which=WHICH, doubt=st.sampled_from(["retry", "retry", "skip", "cancelled"]))
    def take_over(self, data: st.DataObject, which: int, doubt: str) -> None:
        """The lease of a begun call lapses, another process takes the call over, and a person decides about the
        doubt."""
        begun = sorted(name for name, key in self.keys.items() if key.attempt and key.result is None)
        name = data.draw(st.sampled_from(begun))
        self.stand_still(LEASE + 1)
        self.run(which, name, "approve")
        if self.keys[name].doubt == "open":
            self.settle(name, "approve", doubt)
            self.run(which, name, "approve")

    def _begin(self, which: int, name: str, args: dict[str, int]) -> None:
        process, key = self.processes[which], self.keys[name]
        if name not in process.opened:
            with pytest.raises(HitlError, match="call open"):
                self.do(process.gate.begin(self.mine(name), args))
            return
        expected = self.expected_begin(name, args)
        SEEN["begin", expected.__name__] += 1
        if expected is NotApproved:
            with pytest.raises(NotApproved):
                self.do(process.gate.begin(self.mine(name), args, wait=0))
            return
        begun = self.do(process.gate.begin(self.mine(name), args, wait=0))
        assert type(begun) is expected, f"{name}: {begun}, not {expected.__name__}"
        if isinstance(begun, Finished):
            assert begun.result.value == key.result or begun.result.error == (key.result or {}).get("error")
        elif isinstance(begun, InDoubt):
            key.doubt, key.holder = key.doubt or "open", None
        elif isinstance(begun, Granted):
            self.granted(process, name, begun)

    def granted(self, process: Process, name: str, begun: Granted) -> None:
        key = self.keys[name]
        assert not self.leased(key), "two grants at the same time"
        if key.attempt and ACTIONS[name].effect == "once":
            assert key.doubt == "retry", "granted twice, and nobody said so"
        key.attempt += 1
        assert begun.attempt == key.attempt
        assert begun.edited == key.edited
        key.doubt, key.edited = None, None
        key.holder, key.leased_until = (self.processes.index(process), process.life), self.now + LEASE
        process.grants[name] = key.attempt

    def is_held(self, process: Process, name: str) -> bool:
        """Whether a process's grant is still good: no other process has written to the key since."""
        return self.keys[name].holder == (self.processes.index(process), process.life)

    @precondition(lambda self: any(process.grants for process in self.processes))
    @rule(data=st.data(), fails=st.sampled_from([False, False, True]))
    def finish(self, data: st.DataObject, fails: bool) -> None:
        granted = [(process, name) for process in self.processes for name in sorted(process.grants)]
        self._finish(*data.draw(st.sampled_from(granted)), fails)

    @rule(which=WHICH, name=KEYS)
    def run_to_the_end(self, which: int, name: str) -> None:
        process = self.processes[which]
        self.run(which, name, "approve")
        if name in process.grants:
            self._finish(process, name, fails=False)
            self.run(which, name, "approve")

    def _finish(self, process: Process, name: str, fails: bool) -> None:
        key, attempt = self.keys[name], process.grants.pop(name)
        result = {"error": f"{attempt} by {process.life}"} if fails else {"by": process.life, "of": attempt}
        ending = (
            process.gate.fail(self.mine(name), result["error"])
            if fails
            else process.gate.finish(self.mine(name), result)
        )
        if not self.is_held(process, name):
            SEEN["finish", "GrantLost"] += 1
            with pytest.raises(GrantLost):
                self.do(ending)
            return
        SEEN["finish", "failed" if fails else "finished"] += 1
        self.do(ending)
        key.result, key.holder = result, None

    @precondition(lambda self: any(process.grants for process in self.processes))
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        """A body is cancelled, in a process that lives on."""
        granted = [(process, name) for process in self.processes for name in sorted(process.grants)]
        process, name = data.draw(st.sampled_from(granted))
        del process.grants[name]
        self.do(process.gate.ledger.abandon(self.mine(name)))
        if self.is_held(process, name):
            self.keys[name].holder = None

    @rule(which=WHICH)
    def crash(self, which: int) -> None:
        """A process dies with its grants, and another replaces it. Its leases stay until they lapse."""
        self.do(self.processes[which].store.__aexit__(None, None, None))
        self.processes[which] = self.do(self._started())

    # The person.

    @rule(
        name=KEYS,
        said=SAID,
        doubt=st.sampled_from(["retry"] * 3 + ["skip", "cancelled"]),
    )
    def settle(self, name: str, said: str, doubt: str) -> None:
        key, gate = self.keys[name], self.processes[0].gate
        if key.doubt == "open":
            self.do(
                gate.cancel(self.mine(name))
                if doubt == "cancelled"
                else gate.answer(self.mine(name), doubt, by="ann")
            )
            key.doubt = doubt
            return
        if key.opened_at is None or key.decision is not None:
            with pytest.raises(HitlNoPendingRequest):
                self.do(gate.answer(self.mine(name), {"decision": said}))
            return
        if self.overdue(key, ACTIONS[name]):
            with pytest.raises(HitlStaleAnswer):
                self.do(gate.answer(self.mine(name), {"decision": "approve"}))
            key.decision = "timed out"
            return
        edited = {"edited_args": EDITED} if said == "edit" else {}
        answer = {"decision": said, **edited}
        self.do(
            gate.cancel(self.mine(name))
            if said == "cancelled"
            else gate.answer(self.mine(name), answer, by="ann")
        )
        key.decision = said

    @precondition(lambda self: any(key.decision is not None for key in self.keys.values()))
    @rule(data=st.data(), said=st.sampled_from(["approve", "deny"]))
    def settle_again(self, data: st.DataObject, said: str) -> None:
        """An answer to a settled request changes nothing, whoever gives it."""
        name = data.draw(st.sampled_from(sorted(it for it, key in self.keys.items() if key.decision)))
        store = self.processes[1].store
        with pytest.raises(HitlStaleAnswer):
            self.do(store.settle(f"gate:{self.mine(name)}", "call", {"decision": said}, by="bob"))

    # Time.

    @rule(seconds=st.sampled_from([1.0, 12.0, LEASE + 1, TIMEOUT]))
    def let_time_pass(self, seconds: float) -> None:
        """Time passes with heartbeats in the living processes; the leases of dead processes lapse."""
        while seconds > 0:
            self.stand_still(min(seconds, LEASE / 3))
            for which in (0, 1):
                self.heartbeat(which)
            seconds -= LEASE / 3

    @rule(seconds=st.sampled_from([1.0, LEASE + 1, TIMEOUT]))
    def stand_still(self, seconds: float) -> None:
        """Time passes and no process renews its leases, as when the machine sleeps.

        The clock is set, not advanced, so that no heartbeat wakes by itself at an unknown moment.
        """
        self.clock._now += seconds

    @rule(which=WHICH)
    def heartbeat(self, which: int) -> None:
        """A process renews the leases that are a third over. A lapsed lease is good again if no other process took
        it."""
        process = self.processes[which]
        leases, store = process.store._leases, process.store._open_store
        assert store is not None
        self.do(leases._renew(store))
        for name, attempt in process.grants.items():
            key = self.keys[name]
            is_good = self.is_held(process, name) and attempt == key.attempt
            if is_good and self.now - (key.leased_until - LEASE) >= LEASE / 3:
                SEEN["renewed"] += 1
                key.leased_until = self.now + LEASE

    @rule(which=WHICH, name=KEYS, comes_late=st.booleans())
    def nobody_answers(self, which: int, name: str, comes_late: bool) -> None:
        """The deadline passes. Then a late answer is refused, or due requests are expired."""
        self.open(which, name)
        self.stand_still(TIMEOUT)
        if comes_late:
            self.settle(name, "approve", "retry")
        else:
            self.expire_due()
        self.decision(1 - which, name)

    @rule()
    def expire_due(self) -> None:
        due = sorted(name for name, key in self.keys.items() if self.overdue(key, ACTIONS[name]))
        expired = self.do(self.processes[0].store.expire_due())
        ours = {f"gate:{self.mine(name)}": name for name in ACTIONS}
        assert sorted(ours[each.thread_id] for each in expired if each.thread_id in ours) == due
        for name in due:
            self.keys[name].decision = "timed out"
            SEEN["timed out"] += 1

    # Invariants.

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        self.do(self._look_at_all())

    async def _look_at_all(self) -> None:
        for name, key in self.keys.items():
            await self._look(name, key)

    async def _look(self, name: str, key: Key) -> None:
        stored = await self.processes[0].store.load(f"gate:{self.mine(name)}")
        assert (stored is None) == (key.opened_at is None and key.attempt == 0)
        if stored is None:
            return
        roles = [message.role for message in stored.messages]
        assert roles == (["assistant"] if key.result is None else ["assistant", "tool"])
        effect = stored.effects.get("call")
        assert (
            (None if effect is None else effect.attempt) == (key.attempt or None)
            if not key.result
            else not effect
        )
        open_now = sorted(it for it, each in stored.requests.items() if each.status == "pending")
        asked = ["call"] if key.opened_at is not None and key.decision is None else []
        assert open_now == sorted(asked + ([f"call:escalate:{key.attempt}"] if key.doubt == "open" else []))
        assert stored.is_leased == self.leased(key), f"{name} is leased in one of model and store alone"

    def teardown(self) -> None:
        for process in self.processes:
            self.do(process.store.__aexit__(None, None, None))
        for key in self.keys.values():
            SEEN["attempts", key.attempt] += 1


RUNS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # shrinking a failure takes longer than reading it
    suppress_health_check=list(HealthCheck),
)
ROUNDS = 20
TO_BE_SEEN: list[Any] = [
    *(("begin", each) for each in ("Granted", "Finished", "Running", "InDoubt", "Refused", "NotApproved")),
    *(("decision", each) for each in (None, "approve", "edit", "deny", "cancelled", "timed out")),
    *(("finish", each) for each in ("finished", "failed", "GrantLost")),
    ("attempts", 2),
    "timed out",
    "renewed",
]
"""What has to have happened at least once, else the machine has not shown that it holds then."""


def test_one_decision_and_one_effect_whatever_happens(tmp_path: Path) -> None:
    """At least two rounds, each with a different seed, and more until every outcome was seen."""
    SEEN.clear()
    unseen = TO_BE_SEEN
    with asyncio.Runner() as runner:
        world = World(tmp_path / "gate.db", runner)
        for number in range(ROUNDS):
            machine = seed(number)(type("GateMachine", (GateMachine,), {"world": world}))
            run_state_machine_as_test(machine, settings=RUNS)
            unseen = [each for each in TO_BE_SEEN if not SEEN[each]]
            if number and not unseen:
                return
    raise AssertionError(f"never happened: {unseen}; seen: {SEEN}")
