"""Functions of every kind behind the gate, and what a type checker and a listener see of them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kit.patience import PATIENCE
from kit.typed_files import type_faults

from askfirst import Gate, Pending, Ran, SyncGate
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import HitlError, InvalidTool
from askfirst.gate.guarded import GuardedFunctions
from askfirst.requests import StoredRequest

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/gate.db"


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    async with SQLiteCheckpointer(tmp_path / "own.db") as store, Gate(store) as made:
        yield made


# Kinds of functions.


async def test_class_methods_and_static_methods_in_either_order(gate: Gate) -> None:
    class Desk:
        @classmethod
        @gate.guarded(requires_approval=False)
        async def inside(cls, who: str) -> str:
            """Greet."""
            return f"{cls.__name__} {who}"

        @gate.guarded(requires_approval=False)
        @classmethod
        async def outside(cls, who: str) -> str:
            """Greet."""
            return f"{cls.__name__} {who}"

        @staticmethod
        @gate.guarded(requires_approval=False)
        async def still(who: str) -> str:
            """Greet."""
            return who

        @gate.guarded(requires_approval=False)
        @staticmethod
        async def calm(who: str) -> str:
            """Greet."""
            return who

    class Counter(Desk):
        pass

    assert await Desk.inside("a") == await Desk().outside("a") == "Desk a"
    assert await Counter.inside("a") == await Counter.outside("a") == "Counter a"
    assert [await Desk.still("b"), await Desk().still("b"), await Desk.calm("b"), await Desk().calm("b")] == [
        "b"
    ] * 4


async def test_a_generator_is_refused_with_a_sentence(gate: Gate) -> None:
    def rows() -> Iterator[int]:
        """Count."""
        yield 1

    async def slow_rows() -> AsyncIterator[int]:
        """Count."""
        yield 1

    for function in (rows, slow_rows):
        with pytest.raises(InvalidTool, match="it is a generator, whose result could not be kept"):
            gate.guarded(function)
        with pytest.raises(InvalidTool, match="generator"):
            await gate.call(function, key="k")


async def test_a_guarded_function_keeps_its_signature(gate: Gate) -> None:
    @gate.guarded
    async def refund(order: str, /, cents: int = 100, *, note: str | None = None) -> str:
        """Pay money back."""
        return order

    assert str(inspect.signature(refund)) == (
        "(order: 'str', /, cents: 'int' = 100, *, note: 'str | None' = None) -> 'str'"
    )
    assert inspect.iscoroutinefunction(refund)
    with pytest.raises(TypeError, match=r"refund\(\): .*'order'"):
        await refund()  # type: ignore[call-arg]


async def test_an_async_function_through_a_sync_gate(url: str) -> None:
    async def pay(cents: int) -> int:
        """Pay."""
        return cents

    def in_a_thread() -> object:
        with SyncGate(url) as gate:
            return gate.call(pay, {"cents": 5}, key="k", requires_approval=False)

    assert await asyncio.to_thread(in_a_thread) == Ran(5)


async def test_call_uses_the_key_of_a_guarded_function(gate: Gate) -> None:
    ran: list[str] = []

    @gate.guarded(requires_approval=False, key=lambda order: f"refund-{order}")
    async def refund(order: str) -> int:
        """Pay back."""
        ran.append(order)
        return len(ran)

    assert await refund("a") == 1
    assert await gate.call(refund, {"order": "a"}) == Ran(1)
    assert await gate.call(refund, {"order": "a"}, key="another") == Ran(2)

    @gate.guarded(requires_approval=False, key=lambda: "")
    async def nameless() -> None:
        """Do nothing."""

    with pytest.raises(HitlError, match="the key of a call is a text, not ''"):
        await nameless()
    with pytest.raises(HitlError, match="the key of a call is a text, not ''"):
        await gate.call(nameless)


def test_a_function_is_read_once_and_forgotten_after_a_thousand_others() -> None:
    known = GuardedFunctions()

    def pay(cents: int) -> int:
        """Pay."""
        return cents

    first = known.get(pay, {"effect": "none"})
    assert known.get(pay, {"effect": "none"}) is first
    assert known.get(pay, {}) is not first
    assert known.get(pay, {"labels": {"cents": "Cents"}}).display.labels == {"cents": "Cents"}
    for number in range(1000):
        known.get(pay, {"timeout": number + 1})
    assert known.get(pay, {"effect": "none"}) is not first
    assert len(known._known) == 1000


# Listeners.


def test_a_listener_hears_of_functions_that_are_not_async(url: str) -> None:
    heard: list[tuple[str, str]] = []
    gate = Gate(url)

    def listen(request: StoredRequest) -> None:
        heard.append((request.question_id, threading.current_thread().name))

    stop = gate.on_opened(listen)

    @gate.guarded(wait=0, key=lambda order: order)
    def refund(order: str) -> str:
        """Pay back."""
        return order

    with pytest.raises(Pending):
        refund("A-1")
    stop()
    with pytest.raises(Pending):
        refund("A-2")
    gate.portal.close()
    assert heard == [("call", "askfirst-gate")]


def test_a_listener_of_a_sync_gate_answers_from_another_thread(url: str) -> None:
    with SyncGate(url) as gate:
        threads: list[threading.Thread] = []

        def answer(request: StoredRequest) -> None:
            told = threading.Thread(target=gate.answer, args=(request, {"decision": "approve"}))
            threads.append(told)
            told.start()

        gate.on_opened(answer)

        def pay(cents: int) -> int:
            """Pay."""
            return cents

        assert gate.call(pay, {"cents": 5}, key="k", wait=PATIENCE) == Ran(5)
        for thread in threads:
            thread.join()


# Types.

TYPED = """
from typing import assert_type

from askfirst import Gate, SyncGate

gate = Gate("sqlite:///askfirst.db")
sync_gate = SyncGate("sqlite:///askfirst.db")


@gate.guarded(risk="high", wait=0, key=lambda order, cents: order)
async def refund(order: str, cents: int) -> bytes: ...


@gate.guarded
def pay(order: str, *, cents: int = 1) -> list[int]: ...


@sync_gate.guarded(effect="none")
def look_up(order: str) -> float: ...


class Desk:
    @gate.guarded(requires_approval=lambda args: args["cents"] > 100)
    async def refund(self, cents: int) -> bytes: ...

    @classmethod
    @gate.guarded
    def made(cls, name: str) -> int: ...

    @staticmethod
    @sync_gate.guarded
    def still(name: str) -> int: ...


async def use() -> None:
    assert_type(await refund("a", cents=1), bytes)
    assert_type(pay("a", cents=1), list[int])
    assert_type(look_up("a"), float)
    assert_type(await Desk().refund(1), bytes)
    assert_type(Desk.made("a"), int)
    assert_type(Desk.still("a"), int)
"""
FAULTS = """

async def misuse() -> None:
    await refund(1, 2)
    pay("a", 1)
    look_up()
    await Desk().refund("a")
    sync_gate.guarded(effect="twice")
"""


def test_pyright_sees_the_same_function(tmp_path: Path) -> None:
    assert type_faults(tmp_path, TYPED) == []


def test_pyright_finds_calls_that_do_not_fit(tmp_path: Path) -> None:
    first = TYPED.count("\n") + 4
    lines = {int(each.partition(":")[0]) for each in type_faults(tmp_path, TYPED + FAULTS)}
    assert lines == set(range(first, first + 5))
