"""Races of one framework's paused run: its own human-in-the-loop beside the gate, each in processes of its own.

A life is a script ``lives_<framework>.py`` that takes one verb (``ask``, ``press``, ``go_on``, ``early``, ``alter``)
and writes a line into ``effects.txt`` for each effect of its tool. It may name rows that its framework has no way to
show in ``UNSUPPORTED``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askfirst.errors import HitlNoPendingRequest, HitlStaleAnswer
from askfirst.workers import Worker
from kit.paths import with_kit
from kit.patience import PATIENCE

TABLE: list[str] = []
"""Lines that are printed at the end of the run."""
AT_ONCE = 5


@dataclass(frozen=True)
class Stage:
    """One paused run: a framework's own storage, a store of ours, and the effects."""

    life: Path
    side: str
    store: str
    folder: Path
    calls: int = 1

    def start(self, verb: str, **options: str) -> subprocess.Popen[str]:
        """Start a process that does one thing."""
        env = {
            **with_kit(),
            "LIFE_SIDE": self.side,
            "LIFE_STORE": self.store,
            "LIFE_FOLDER": str(self.folder),
            "LIFE_CALLS": str(self.calls),
            **options,
        }
        return subprocess.Popen(  # noqa: S603
            [sys.executable, str(self.life), verb],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, verb: str, *, may_die: bool = False, **options: str) -> str:
        """Do one thing in a process of its own; returns what it printed."""
        process = self.start(verb, **options)
        out, err = process.communicate(timeout=PATIENCE * 4)
        if process.returncode != 0 and not may_die:
            raise AssertionError(
                f"{verb} of {self.life.name} ended with {process.returncode}:\n{err[-3000:]}"
            )
        return out

    @property
    def effects(self) -> list[str]:
        """The lines that the tool wrote."""
        path = self.folder / "effects.txt"
        return path.read_text().split("\n")[:-1] if path.exists() else []


def at_once(stage: Stage) -> None:
    """Five processes answer and go on at the same time."""
    stage.run("ask")
    for process in [stage.start("press") for _ in range(AT_ONCE)]:
        process.communicate(timeout=PATIENCE * 4)


def again(stage: Stage) -> None:
    """The same answer comes again."""
    stage.run("ask")
    stage.run("press")
    stage.run("press", may_die=stage.side == "native")


def one_of_two(stage: Stage) -> None:
    """Of two calls one is answered."""
    stage.run("ask")
    stage.run("press", LIFE_ONLY="1", may_die=stage.side == "native")


def killed(stage: Stage) -> None:
    """SIGKILL right after the effect, then another process goes on."""
    stage.run("ask")
    stage.run("press", may_die=True, LIFE_CRASH="after_effect")
    stage.run("go_on", may_die=stage.side == "native")


def early(stage: Stage) -> None:
    """Resumed with an approval that nobody gave."""
    stage.run("ask")
    stage.run("early", may_die=True)


def altered(stage: Stage) -> None:
    """The arguments are changed in the framework's own storage between asking and running."""
    stage.run("ask")
    stage.run("alter")
    stage.run("press", may_die=True)


ROWS: dict[str, tuple[Callable[[Stage], None], int, list[int]]] = {
    "5 processes answer at once": (at_once, 1, [1]),
    "the same answer again": (again, 1, [1]),
    "one of two answered": (one_of_two, 2, [1]),
    "kill -9 after the effect": (killed, 1, [1]),
    "resumed without an answer": (early, 1, [0]),
    "arguments altered in storage": (altered, 1, [0]),
}
"""For each row: what is done, how many calls the model makes, and how many effects ours may have."""


def race_table(
    name: str, life: Path, tmp_path: Path, stores: list[str], native: bool = True
) -> dict[str, tuple[str, str]]:
    """Play every row, native beside ours; asserts ours. ``stores`` are databases, one is made anew for each row."""
    unsupported = dict(re.findall(r'^\s*"([^"]+)": "([^"]+)",', _table_of(life), re.MULTILINE))
    found: dict[str, tuple[str, str]] = {}
    for number, (row, (play, calls, allowed)) in enumerate(ROWS.items()):
        said = {}
        for side in ("native", "ours"):
            if row in unsupported or (side == "native" and not native):
                said[side] = unsupported.get(row, "–")
                continue
            folder = tmp_path / f"{name}-{number}-{side}"
            folder.mkdir()
            store = stores[number % len(stores)] or f"sqlite:///{folder}/askfirst.db"
            stage = Stage(life, side, store, folder, calls)
            play(stage)
            said[side] = _told(stage.effects)
            if side == "ours":
                assert len(stage.effects) in allowed, f"{name}, {row}: {stage.effects}"
                assert not any(line.endswith(" 9999") for line in stage.effects), (name, row)
        found[row] = said["native"], said["ours"]
        TABLE.append(f"{name:<16} {row:<30} native {said['native']:<24} ours {said['ours']}")
    return found


def _table_of(life: Path) -> str:
    text = life.read_text("utf-8")
    start = text.find("UNSUPPORTED")
    return "" if start < 0 else text[start : text.find("}", start)]


def _told(effects: list[str]) -> str:
    times = Counter(effects)
    most = max(times.values(), default=0)
    cents = " of 9999" if any(line.endswith(" 9999") for line in effects) else ""
    ids = len(times)
    return f"{len(effects)} effect{'s' if len(effects) != 1 else ''}{cents}" + (
        f" ({most} times one call)" if most > 1 and ids > 1 else ""
    )


def write_effect(call: str, cents: int) -> None:
    """What the tool of every life does: one line for each effect; then perhaps the process dies."""
    with (Path(os.environ["LIFE_FOLDER"]) / "effects.txt").open("a", encoding="utf-8") as file:
        file.write(f"{call} {cents}\n")
        file.flush()
        os.fsync(file.fileno())
    if os.environ.get("LIFE_CRASH") == "after_effect":
        os.kill(os.getpid(), 9)


# What the scripts of all lives share.


async def answer(gate: Any) -> None:
    """Approve what is open, or only the first of it."""
    waiting = await gate.pending()
    for request in waiting[:1] if os.environ.get("LIFE_ONLY") else waiting:
        with suppress(HitlStaleAnswer, HitlNoPendingRequest):
            await gate.answer(request, {"decision": "approve"}, by="ada")


async def go_on(store: Any, resumers: Mapping[str, Any]) -> None:
    """Go on as a worker does, also with what a worker that died has left: wait until its lease lapses."""
    worker = Worker(store, resumers, lease_seconds=1)
    while True:
        await worker.run_due()
        left = [it for it in await worker.continuations.list() if it.state == "running"]
        if not left:
            return
        await asyncio.sleep(0.1)


def say(*, paused: bool, text: str) -> None:
    """How the run stands, for whoever reads the output of a life."""
    sys.stdout.write(json.dumps({"paused": paused, "text": text}) + "\n")
