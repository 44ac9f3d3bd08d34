"""Measuring several async functions (works) in turns, within one run."""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number and its budget; without a budget it is for orientation."""

    name: str
    value: float
    budget: float | None
    unit: str = "x"
    at_least: bool = False
    note: str = ""

    @property
    def kept(self) -> bool:
        """Whether the budget is kept; True without a budget."""
        if self.budget is None:
            return True
        return self.value >= self.budget if self.at_least else self.value <= self.budget


def report(figures: Iterator[Figure]) -> int:
    """Print figures as they are measured; returns how many missed their budgets."""
    missed = 0
    for figure in figures:
        missed += not figure.kept
        value = f"{figure.value:.2f} {figure.unit}"
        print(f"  {figure.name:<52} {value:>12}  {_verdict(figure)}  {figure.note}", flush=True)
    return missed


def _verdict(figure: Figure) -> str:
    if figure.budget is None:
        return "(for orientation)"
    bound = "at least" if figure.at_least else "at most"
    return f"({bound} {figure.budget:g})  {'ok' if figure.kept else 'MISSED'}"


async def interleaved(
    *works: Callable[[], Awaitable[object]],
    rounds: int,
    per_round: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """The median seconds of each work, measured in turns, so that a slow moment of the machine affects all works.

    With ``time.process_time`` as the ``clock``, it is the CPU time of all threads.
    """
    times: list[list[float]] = [[] for _ in works]
    for work in works:
        for _ in range(per_round):
            await work()
    with no_collection():
        for _ in range(rounds):
            for work, taken in zip(works, times, strict=True):
                begin = clock()
                for _ in range(per_round):
                    await work()
                taken.append((clock() - begin) / per_round)
            await asyncio.sleep(0)
    return [statistics.median(taken) for taken in times]


async def python_calls(work: Callable[[], Awaitable[object]], *, warm: int = 5) -> int:
    """The number of Python calls of a work on this thread, those of asyncio and libraries included.

    It is a count, the same on every machine. ``warm`` runs before the count do what happens only once.
    """
    for _ in range(warm):
        await work()
    calls = 0

    def hook(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    with no_collection():
        sys.setprofile(hook)
        try:
            await work()
        finally:
            sys.setprofile(None)
    return calls


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the garbage collector off, because it would run at random times of a measurement."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
