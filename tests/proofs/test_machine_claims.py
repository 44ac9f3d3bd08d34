"""A state machine: workers save, claim, renew, release and resolve checkpoints, against a plain model."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from kit.stores import Database

from askfirst.checkpointer.base import StoredCheckpoint
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import CheckpointNotFound, CheckpointNotPendingError, StoreError
from askfirst.hitl.testing import FakeClock

TTL = 60
SEEN: Counter[tuple[str, str]] = Counter()
"""What was tried, and what came of it, over all runs."""


@dataclass(frozen=True)
class Model:
    """A checkpoint, as the model has it."""

    agent: str
    thread: str | None
    body: int
    created: float
    state: str = "pending"
    by: str | None = None
    until: float | None = None
    retaken: bool = False

    def held(self, now: float) -> bool:
        return self.state == "resolving" and self.until is not None and self.until > now


@dataclass
class World:
    """What all examples of a run share: a store, a clock and a loop."""

    keeper: SqlCheckpointer
    clock: FakeClock
    runner: asyncio.Runner
    examples: Any = field(default_factory=lambda: count(1))


NAMES = st.sampled_from(["a", "b"])
WHERE = st.sampled_from(["here"] * 6 + ["on any thread"] * 2 + ["of another agent", "on another thread"])
WORKERS = st.sampled_from(["ann", "bob"])


class ClaimMachine(RuleBasedStateMachine):
    """Each rule does one thing in the store and in the model, and compares the results."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.example = next(self.world.examples)
        self.known: dict[str, Model] = {}

    @property
    def now(self) -> float:
        return self.world.clock.now()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.world.runner.run(work)

    def mine(self, name: str) -> str:
        """A name that no other example uses."""
        return f"{name}-{self.example}"

    def attempt(self, what: str, work: Coroutine[Any, Any, Any], expected: type[Exception] | None) -> Any:
        """Do something in the store that succeeds or fails as the model says."""
        SEEN[what, "done" if expected is None else expected.__name__] += 1
        if expected is None:
            return self.run(work)
        with pytest.raises(expected) as failed:
            self.run(work)
        assert type(failed.value) is expected
        return failed.value

    @initialize()
    def begin(self) -> None:
        for name in ("a", "b"):
            self.save(name, "here", 0)

    @rule(name=NAMES, where=WHERE, body=st.integers(0, 9))
    def save(self, name: str, where: str, body: int) -> None:
        known, expected = self.known.get(name), None
        agent, thread = self.place(name, where)
        if known is not None and (known.agent, known.thread) != (agent, thread):
            expected = StoreError
        elif known is not None and known.state != "pending":
            expected = CheckpointNotPendingError
        keeper = self.world.keeper
        work = keeper.save_checkpoint(self.mine(name), self.mine(agent), {"n": body}, thread_id=thread)
        self.attempt("save", work, expected)
        if expected is None:
            fresh = Model(agent, thread, body, self.now)
            self.known[name] = fresh if known is None else replace(known, body=body)

    @rule(name=NAMES, where=WHERE, by=WORKERS)
    def claim(self, name: str, where: str, by: str) -> None:
        agent, thread = self.place(name, where)
        known, expected = self.known.get(name), self.absent(name, agent, thread)
        if known is not None and expected is None and (known.state == "resolved" or known.held(self.now)):
            expected = CheckpointNotPendingError
        this = (self.mine(name), self.mine(agent))
        work = self.world.keeper.claim_checkpoint(*this, thread_id=thread, by=by, ttl_seconds=TTL)
        result = self.attempt("claim", work, expected)
        if expected is CheckpointNotPendingError and known is not None:
            assert (result.state, result.claimed_by) == (known.state, known.by)
        if known is not None and expected is None:
            retaken = known.retaken or known.state == "resolving"
            taken = replace(known, state="resolving", by=by, until=self.now + TTL, retaken=retaken)
            self.known[name] = taken
            assert seen(result) == shown(taken)
            SEEN["claim", "retaken" if retaken else "fresh"] += 1

    @rule(name=NAMES, where=WHERE, by=WORKERS, move=st.sampled_from(["resolve", "release", "renew"]))
    def hold(self, name: str, where: str, by: str, move: str) -> None:
        agent, thread = self.place(name, where)
        known, expected = self.known.get(name), self.absent(name, agent, thread)
        if known is not None and expected is None and (known.state, known.by) != ("resolving", by):
            expected = CheckpointNotPendingError
        this: Any = {
            "checkpoint_id": self.mine(name),
            "agent_id": self.mine(agent),
            "thread_id": thread,
            "by": by,
        }
        keeper = self.world.keeper
        works: dict[str, Any] = {"resolve": keeper.resolve_checkpoint, "release": keeper.release_checkpoint}
        work = works[move](**this) if move in works else keeper.renew_checkpoint(**this, ttl_seconds=TTL)
        self.attempt(move, work, expected)
        if known is not None and expected is None:
            changes: dict[str, Any] = {
                "resolve": {"state": "resolved", "until": None},
                "release": {"state": "pending", "by": None, "until": None},
                "renew": {"until": self.now + TTL},
            }
            self.known[name] = replace(known, **changes[move])

    @rule(name=NAMES, where=WHERE, really=st.sampled_from([False] * 5 + [True]))
    def delete(self, name: str, where: str, really: bool) -> None:
        if not really:
            return
        agent, _ = self.place(name, where)
        known = self.known.get(name)
        mine = known is not None and known.agent == agent
        expected = CheckpointNotPendingError if known is not None and mine and known.held(self.now) else None
        work = self.world.keeper.delete_checkpoint(self.mine(name), self.mine(agent))
        self.attempt("delete", work, expected)
        if mine and expected is None:
            del self.known[name]

    @rule(seconds=st.sampled_from([1, 30, 60, 90]))
    def wait(self, seconds: int) -> None:
        self.run(self.world.clock.advance(seconds))

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        for agent in ("one", "two"):
            listed = self.run(self.world.keeper.list_checkpoints(self.mine(agent)))
            expected = [(it.created, name, it) for name, it in self.known.items() if it.agent == agent]
            expected.sort(key=lambda each: each[:2])
            names = [it.checkpoint_id for it in listed]
            assert names == [self.mine(name) for _, name, _ in expected]
            assert [seen(it) for it in listed] == [shown(it) for _, _, it in expected]

    def place(self, name: str, where: str) -> tuple[str, str | None]:
        """The agent and the thread to name: those of the checkpoint, or others."""
        known = self.known.get(name)
        agent, thread = ("one", "t") if known is None else (known.agent, known.thread)
        if where == "of another agent":
            return ("two" if agent == "one" else "one"), thread
        if where == "on another thread":
            return agent, "u" if thread == "t" else "t"
        return agent, thread if where == "here" else None

    def absent(self, name: str, agent: str, thread: str | None) -> type[Exception] | None:
        known = self.known.get(name)
        if known is None or known.agent != agent or thread not in (None, known.thread):
            return CheckpointNotFound
        return None


def seen(stored: StoredCheckpoint) -> tuple[Any, ...]:
    """A stored checkpoint, as values to compare with `shown`."""
    claim = (stored.state, stored.claimed_by, stored.claimed_until, stored.retaken)
    return (stored.thread_id, stored.body, stored.created_at, *claim)


def shown(model: Model) -> tuple[Any, ...]:
    """The model's checkpoint, as values to compare with `seen`."""
    until = None if model.until is None else round(model.until * 1000) / 1000
    claim = (model.state, model.by, until, model.retaken)
    return (model.thread, {"n": model.body}, round(model.created * 1000) / 1000, *claim)


EXAMPLES = {"memory": 80, "sqlite": 20, "postgres": 20, "mysql": 20}


def test_claims_keep_the_rules(database: Database) -> None:
    SEEN.clear()
    clock = FakeClock()
    with asyncio.Runner() as runner:
        keeper = database.checkpointer(clock=clock)
        runner.run(keeper.__aenter__())
        try:
            ClaimMachine.world = World(keeper, clock, runner)
            run_state_machine_as_test(
                ClaimMachine,
                settings=settings(
                    max_examples=EXAMPLES[database.kind],
                    stateful_step_count=40,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    phases=[Phase.generate, Phase.shrink],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(keeper.__aexit__(None, None, None))
    assert SEEN["claim", "fresh"]
    assert SEEN["claim", "CheckpointNotPendingError"]
    if database.kind == "memory":  # the fastest store runs enough examples to see every outcome
        for what in ("save", "claim", "resolve", "release", "renew", "delete"):
            assert SEEN[what, "done"], (what, SEEN)
            assert SEEN[what, "CheckpointNotPendingError"], (what, SEEN)
        assert SEEN["claim", "retaken"], SEEN
        assert SEEN["claim", "CheckpointNotFound"], SEEN
