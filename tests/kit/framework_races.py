"""Races of a framework's paused run: its own human-in-the-loop and the gate, each step in another process.

`race_table` plays every row of `ROWS` natively, and with the gate on SQLite and on PostgreSQL, and asserts that with
the gate there was one effect. Tests print what was found; ``scripts/bench races NAME`` also writes it into
``docs/project/framework-races.md``, with the versions and the date.

To add a framework, write ``tests/adapters/frameworks/lives_<name>.py`` (with ``_`` for ``-``), a script that takes
one verb as its argument, and call ``race_table("The framework", LIFE, tmp_path)`` in a test, and
`in_three_processes` or `early_and_answered` in another. The verbs:

- ``ask``: start a run whose model makes ``LIFE_CALLS`` calls of one tool, with ``cents`` of 5, 6, …; it pauses.
- ``press``: read what the run waits for, call `at_the_line`, then approve it as the framework's documentation has it
  (the first call alone if ``LIFE_ONLY`` is set) and go on. On our side that is ``await answer(gate)`` and
  ``await go_on(store, resumers)``. With ``LIFE_AGAIN`` it is the same answer once more: where a pause is a value that
  the application keeps, with that same value.
- ``go_on``: go on with a run that another process has answered, and in which it died.
- ``early``: resume with the framework's own approval, which on our side nobody has given.
- ``alter``: change the cents to 9999 wherever the framework has stored them.

The tool calls `write_effect`. ``LIFE_SIDE`` is ``native`` or ``ours``, ``LIFE_STORE`` the URL of our store,
``LIFE_FOLDER`` the folder for the framework's own storage. ``NAME = "The framework"`` in the script is its name in
the table; ``UNSUPPORTED = {"the row": "why"}`` names rows that the framework cannot play. Every process is forked
from one that has loaded what the script imports, so that a row takes a second and not a minute. So the script has to
read the environment when it runs, not when it is imported.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from askfirst import Gate
from askfirst.errors import HitlNoPendingRequest, HitlStaleAnswer
from askfirst.workers import Worker
from kit.framework_stores import KINDS, new_store
from kit.paths import ROOT, TESTS, with_kit
from kit.patience import PATIENCE
from kit.warm_python import warm_python

TABLE: list[str] = []
"""Lines that are printed at the end of the run."""
AT_ONCE = 5
PAGE = ROOT / "docs" / "project" / "framework-races.md"
_BEGIN, _END = "<!-- races -->\n", "<!-- /races -->\n"


@dataclass(frozen=True)
class Stage:
    """One paused run: a framework's own storage, a store of ours, and the effects."""

    life: Path
    side: str
    store: str
    folder: Path
    calls: int = 1
    failures: list[str] = field(default_factory=list[str])
    """The kinds of errors of processes that were allowed to fail."""

    def start(self, verb: str, **options: str) -> subprocess.Popen[str]:
        """Start a process with one verb."""
        env = {
            **with_kit(),
            "LIFE_SIDE": self.side,
            "LIFE_STORE": self.store,
            "LIFE_FOLDER": str(self.folder),
            "LIFE_CALLS": str(self.calls),
            **options,
        }
        return subprocess.Popen(  # noqa: S603
            [*warm_python(like=self.life), str(self.life), verb],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, verb: str, *, may_die: bool = False, **options: str) -> str:
        """Run one verb in another process; returns its output."""
        process = self.start(verb, **options)
        out, err = process.communicate(timeout=PATIENCE * 4)
        if process.returncode != 0:
            if not may_die:
                raise AssertionError(
                    f"{verb} of {self.life.name} ended with {process.returncode}:\n{err[-3000:]}"
                )
            if process.returncode > 0:
                self.failures.append(_kind_of_error(err))
        return out

    @property
    def effects(self) -> list[str]:
        """The lines that the tool wrote."""
        path = self.folder / "effects.txt"
        return path.read_text().split("\n")[:-1] if path.exists() else []


def at_once(stage: Stage) -> None:
    """Five processes answer and continue at the same time: each waits until all have read the pending calls."""
    stage.run("ask")
    (stage.folder / "line").mkdir()
    for process in [stage.start("press", LIFE_LINE=str(stage.folder / "line")) for _ in range(AT_ONCE)]:
        process.communicate(timeout=PATIENCE * 4)


def again(stage: Stage) -> None:
    """The same answer is given again, with the same value as the first time."""
    stage.run("ask")
    stage.run("press")
    stage.run("press", may_die=stage.side == "native", LIFE_AGAIN="1")


def one_of_two(stage: Stage) -> None:
    """One of two calls is answered."""
    stage.run("ask")
    stage.run("press", LIFE_ONLY="1", may_die=stage.side == "native")


def killed(stage: Stage) -> None:
    """SIGKILL right after the effect, then another process continues."""
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


ROWS: dict[str, tuple[Callable[[Stage], None], int, int]] = {
    f"{AT_ONCE} processes answer at once": (at_once, 1, 1),
    "the same answer again": (again, 1, 1),
    "one of two answered": (one_of_two, 2, 1),
    "kill -9 after the effect": (killed, 1, 1),
    "resumed without an answer": (early, 1, 0),
    "arguments altered in storage": (altered, 1, 0),
}
"""For each row: the function that plays it, the number of calls, and the expected number of effects with the gate."""


@dataclass(frozen=True)
class Found:
    """The result of one row: the effects with the framework alone, and with the gate."""

    native: str
    ours: str


def race_table(
    name: str, life: Path, tmp_path: Path, stores: Sequence[str] = KINDS, native: bool = True
) -> dict[str, Found]:
    """Play every row, natively and with the gate on each kind of store; asserts the results with the gate."""
    unsupported: dict[str, str] = _constant(life, "UNSUPPORTED") or {}
    found: dict[str, Found] = {}
    for number, (row, (play, calls, allowed)) in enumerate(ROWS.items()):
        if row in unsupported:
            found[row] = Found("–", unsupported[row])
        else:
            theirs = "–"
            if native:
                folder = _folder(tmp_path, name, number, "native")
                theirs = _played(Stage(life, "native", f"sqlite:///{folder}/unused.db", folder, calls), play)
            for kind in stores:
                folder = _folder(tmp_path, name, number, kind)
                with new_store(kind or "sqlite", folder) as store:
                    stage = Stage(life, "ours", store, folder, calls)
                    play(stage)
                assert len(stage.effects) == allowed, f"{name} on {kind}, {row}: {stage.effects}"
                assert not any(line.endswith(" 9999") for line in stage.effects), (name, kind, row)
            found[row] = Found(theirs, str(allowed))
        TABLE.append(f"{name:<18} {row:<30} native {found[row].native:<24} ours {found[row].ours}")
    return found


def _played(stage: Stage, play: Callable[[Stage], None]) -> str:
    """The result of a row played natively: the number of effects, and whether a process failed."""
    play(stage)
    said = str(len(stage.effects))
    if any(line.endswith(" 9999") for line in stage.effects):
        said += " of 9999"
    return ", ".join([said, *dict.fromkeys(stage.failures)])


def _folder(tmp_path: Path, name: str, number: int, side: str) -> Path:
    folder = tmp_path / f"{name}-{number}-{side or 'sqlite'}"
    folder.mkdir()
    return folder


def _kind_of_error(said: str) -> str:
    last = said.strip().rpartition("\n")[2]
    return last.partition(":")[0].rpartition(".")[2] or "error"


def _constant(life: Path, name: str) -> Any:
    """The value of a constant at the top of a script, read without running the script."""
    for statement in ast.parse(life.read_text("utf-8")).body:
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        )
        if any(isinstance(it, ast.Name) and it.id == name for it in targets):
            return ast.literal_eval(statement.value)  # type: ignore[union-attr]
    return None


async def in_three_processes(life: Path, store: str, folder: Path, text: str | None = None) -> None:
    """One process asks, this one answers, another continues; continuing early, or once more, has no effect.

    ``text`` is the text at the run's end, the same in the process that ended it and in every other.
    """
    stage = Stage(life, "ours", store, folder)
    assert json.loads(stage.run("ask"))["paused"]
    assert json.loads(stage.run("go_on"))["paused"] or text is None
    assert stage.effects == []
    async with Gate(store) as gate:
        [request] = await gate.pending()
        await gate.answer(request, {"decision": "approve"}, by="ada")
    for _ in range(2):
        said = json.loads(stage.run("go_on"))
        assert text is None or said == {"paused": False, "text": text}
    assert [it.partition(" ")[2] for it in stage.effects] == ["5"]


def early_and_answered(life: Path, store: str, folder: Path) -> None:
    """One process asks, one resumes early with the framework's own approval, one answers and goes on: one effect."""
    stage = Stage(life, "ours", store, folder)
    assert '"paused": true' in stage.run("ask")
    assert '"paused": true' in stage.run("early")
    assert stage.effects == []
    assert "charged 5" in stage.run("press")
    assert [it.partition(" ")[2] for it in stage.effects] == ["5"]


def write_effect(call: str, cents: int) -> None:
    """The effect of every life's tool: a line in a file; then the process dies, if ``LIFE_CRASH`` says so."""
    with (Path(os.environ["LIFE_FOLDER"]) / "effects.txt").open("a", encoding="utf-8") as file:
        file.write(f"{call} {cents}\n")
        file.flush()
        os.fsync(file.fileno())
    if os.environ.get("LIFE_CRASH") == "after_effect":
        os.kill(os.getpid(), 9)


# What the scripts of all lives share.


def at_the_line() -> None:
    """Wait until all processes of `at_once` have come to this line; nothing in other rows."""
    line = os.environ.get("LIFE_LINE")
    if line is None:
        return
    (Path(line) / str(os.getpid())).touch()
    until = time.monotonic() + PATIENCE
    while len(list(Path(line).iterdir())) < AT_ONCE:
        if time.monotonic() > until:
            raise AssertionError("not all processes that answer at once have come to the line")
        time.sleep(0.005)


async def answer(gate: Any) -> None:
    """Approve the open requests, or only the first one."""
    waiting = await gate.pending()
    at_the_line()
    for request in waiting[:1] if os.environ.get("LIFE_ONLY") else waiting:
        with suppress(HitlStaleAnswer, HitlNoPendingRequest):
            await gate.answer(request, {"decision": "approve"}, by="ada")


async def go_on(store: Any, resumers: Mapping[str, Any]) -> None:
    """Run due continuations as a worker does, also those of a dead worker: wait until its lease lapses."""
    worker = Worker(store, resumers, lease_seconds=1)
    while True:
        await worker.run_due()
        left = [it for it in await worker.continuations.list() if it.state == "running"]
        if not left:
            return
        await asyncio.sleep(0.1)


def say(*, paused: bool, text: str) -> None:
    """Print the state of the run, for the test that reads the output."""
    sys.stdout.write(json.dumps({"paused": paused, "text": text}) + "\n")


# The page.


def packages(life: Path) -> list[str]:
    """The framework's packages that a life imports, with their versions."""
    known = packages_distributions()
    names = dict.fromkeys(
        name.partition(".")[0]
        for statement in ast.parse(life.read_text("utf-8")).body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for name in (
            [statement.module or ""]
            if isinstance(statement, ast.ImportFrom)
            else [it.name for it in statement.names]
        )
    )
    found = dict.fromkeys(min(known[name], key=len) for name in names if name in known and name != "askfirst")
    return [f"{it} {version(it)}" for it in found]


def write_page(name: str, life: Path, found: Mapping[str, Found], page: Path = PAGE) -> None:
    """Write the results into the page, in place of the earlier ones."""
    cells = [it.ours if it.native == "–" else f"{it.native} → {it.ours}" for it in found.values()]
    line = (
        f"| **{name}** ({', '.join(packages(life))}) | {' | '.join(cells)} | {datetime.now(UTC):%Y-%m-%d} |\n"
    )
    text = page.read_text("utf-8")
    before, _, rest = text.partition(_BEGIN)
    table, _, after = rest.partition(_END)
    heading = f"| framework | {' | '.join(ROWS)} | run on |\n|{'---|' * (len(ROWS) + 2)}\n"
    lines = [it for it in table.splitlines(keepends=True)[2:] if not it.startswith(f"| **{name}**")]
    page.write_text(f"{before}{_BEGIN}{heading}{''.join(sorted([*lines, line]))}{_END}{after}", "utf-8")


def main(framework: str) -> None:
    """Play the table of a framework that is installed in this environment, print it, and write it into the page."""
    life = TESTS / "adapters" / "frameworks" / f"lives_{framework.replace('-', '_')}.py"
    name: str = _constant(life, "NAME") or framework
    with tempfile.TemporaryDirectory() as folder:
        found = race_table(name, life, Path(folder))
    sys.stdout.write("\n".join(TABLE) + "\n")
    write_page(name, life, found)


if __name__ == "__main__":
    main(sys.argv[1])
