"""The gate for code without an event loop, and functions that are not async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import BaseModel

from askfirst import Denied, Gate, Pending, Ran, SyncGate
from askfirst.errors import HitlError


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/gate.db"


@pytest.fixture
def gate(url: str) -> Iterator[SyncGate]:
    with SyncGate(url) as made:
        yield made


def test_a_call_waits_for_nobody_if_told_so_and_picks_the_decision_up(gate: SyncGate) -> None:
    ran: list[str] = []

    @gate.guarded(key=lambda order: order, wait=0)
    def refund(order: str) -> str:
        """Pay back."""
        ran.append(threading.current_thread().name)
        return f"paid {order}"

    assert (refund.__name__, refund.__doc__) == ("refund", "Pay back.")
    with pytest.raises(Pending):
        refund("A-1")
    [waiting] = gate.pending()
    gate.answer(waiting, {"decision": "approve"}, by="ada")
    assert refund("A-1") == "paid A-1"
    assert refund(order="A-1") == "paid A-1"
    assert ran == [threading.current_thread().name], "a body runs in its caller's thread, once"


def test_a_denial_and_a_failure(gate: SyncGate) -> None:
    def refund(order: str) -> str:
        """Pay back."""
        raise ValueError(order)

    assert isinstance(gate.call(refund, {"order": "a"}, key="a", wait=0), Pending)
    gate.cancel("a", "no")
    assert isinstance(gate.call(refund, {"order": "a"}, key="a"), Denied)
    with pytest.raises(ValueError, match="b"):
        gate.call(refund, {"order": "b"}, key="b", requires_approval=False)
    with pytest.raises(HitlError, match="failed: ValueError: b"):
        gate.call(refund, {"order": "b"}, key="b", requires_approval=False)


def test_many_threads_call_one_key(gate: SyncGate) -> None:
    ran: list[int] = []

    def pay() -> int:
        """Pay."""
        ran.append(1)
        return len(ran)

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(lambda _: gate.call(pay, key="k", requires_approval=False), range(16)))
    assert outcomes == [Ran(1)] * 16
    assert ran == [1]


def test_questions(gate: SyncGate) -> None:
    class Size(BaseModel):
        width: int

    with pytest.raises(Pending):
        gate.ask(Size, "How wide?", key="q", wait=0)
    gate.answer("q", {"width": "12"})
    assert gate.ask(Size, "How wide?", key="q") == Size(width=12)
    with pytest.raises(Pending):
        gate.confirm("Go on?", key="c", wait=0)
    gate.answer("c", False)
    assert gate.confirm("Go on?", key="c") is False
    with pytest.raises(Pending):
        gate.choose("Which?", ["a", "b"], key="d", wait=0)
    gate.answer("d", {"choice": "a"})
    assert gate.choose("Which?", ["a", "b"], key="d") == "a"


@pytest.mark.anyio
async def test_a_function_that_is_not_async_does_not_stop_the_event_loop(url: str) -> None:
    async with Gate(url) as gate:

        @gate.guarded(requires_approval=False)
        def pay(cents: int) -> int:
            """Pay."""
            return cents

        with pytest.raises(HitlError, match=r"asyncio\.to_thread"):
            pay(1)
        assert await asyncio.to_thread(pay, 7) == 7
        assert await gate.call(pay, {"cents": 8}) == Ran(8)


def test_methods(gate: SyncGate) -> None:
    class Desk:
        name = "desk"

        @gate.guarded(requires_approval=False)
        def greet(self, who: str) -> str:
            """Greet."""
            return f"{self.name} greets {who}"

    assert Desk().greet("Bob") == "desk greets Bob"
