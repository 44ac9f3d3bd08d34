"""The crash matrix's table, printed at the end of a test run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest


@dataclass
class Tally:
    """The results on one store: the points at which a process was killed, and the lost and doubled effects."""

    tried: int = 0
    resumed: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


TALLIES: dict[str, Tally] = {}


def tally(store: str) -> Tally:
    """The store's row."""
    return TALLIES.setdefault(store, Tally())


def hand_over(output: dict[str, Any]) -> None:
    """In a worker process of pytest-xdist: put the rows into its output, for the main process."""
    output["crash_table"] = {store: asdict(row) for store, row in TALLIES.items()}


def take_over(output: Mapping[str, Any]) -> None:
    """In the main process: add the rows of a worker process."""
    for store, found in output.get("crash_table", {}).items():
        row = tally(store)
        for name, value in found.items():
            setattr(row, name, getattr(row, name) + value)


def summarize(reporter: pytest.TerminalReporter) -> None:
    """Print the table, if the matrix was run."""
    if not TALLIES:
        return
    reporter.write_sep("=", "Crash matrix")
    columns = ("store", "points tried", "resumed", "requests lost", "effects doubled", "transcripts broken")
    reporter.write_line("  ".join(f"{name:>18}" for name in columns))
    for store, row in TALLIES.items():
        cells = (store, row.tried, row.resumed, len(row.lost), len(row.doubled), len(row.broken))
        reporter.write_line("  ".join(f"{cell:>18}" for cell in cells))
