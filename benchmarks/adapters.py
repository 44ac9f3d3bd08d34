"""The time that the gate adds to a framework's tool call: the same run of an agent, without and with the gate.

``python -m benchmarks.adapters NAME`` runs in the environment of that framework; `scripts/bench adapters` runs all.
The two kinds of runs alternate. The model is scripted: two turns, one tool call. So the time is the framework's own.
With the gate, the policy allows the call, so no person is asked. CPU time does not depend on how busy the machine is;
wall time includes waiting for the disk and for threads.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from askfirst import Gate
from askfirst.permissions import StaticPermissionPolicy
from benchmarks.measure import Figure, interleaved, report

Work = Callable[[], Awaitable[object]]
ALLOWS = StaticPermissionPolicy([{"id": "all", "scope": {"tool": "*"}, "effect": "allow"}])
ROUNDS, PER_ROUND = 30, 5


def figures(name: str) -> Iterator[Figure]:
    """The figures of one framework."""
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(_measured(name, Path(folder)))


async def _measured(name: str, folder: Path) -> list[Figure]:
    make: Callable[[Gate | None], Work] = importlib.import_module(
        f"benchmarks.adapter_{name.replace('-', '_')}"
    ).work
    async with (
        Gate("sqlite:///:memory:", policy=ALLOWS) as memory,
        Gate(f"sqlite:///{folder}/gate.db", policy=ALLOWS) as disk,
    ):
        works = [make(None), make(memory), make(disk)]
        found = {
            "processor time": await interleaved(
                *works, rounds=ROUNDS, per_round=PER_ROUND, clock=time.process_time
            ),
            "time": await interleaved(*works, rounds=ROUNDS, per_round=PER_ROUND),
        }
    return [
        _figure(f"{name}: {where}, {what}, over the framework's own", times[place], times[0])
        for what, times in found.items()
        for place, where in enumerate(("in memory", "on SQLite"), 1)
    ]


def _figure(label: str, ours: float, bare: float) -> Figure:
    note = f"{(ours - bare) * 1e6:+.0f} us: {ours * 1e6:.0f} us against {bare * 1e6:.0f} us"
    return Figure(label, ours / bare, None, note=note)


def main(names: list[str]) -> int:
    """Print the figures of the frameworks that are named."""
    missed: Any = 0
    for name in names:
        missed += report(figures(name))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
