"""``python -m benchmarks [name ...]``: run benchmarks, print their figures, exit 1 if a budget is missed."""

from __future__ import annotations

import importlib
import sys

from benchmarks.measure import report

ALL = ("core", "durable", "policy", "gate", "service", "client", "going_on", "peers")


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(
            f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(ALL)}, adapters and races",
            file=sys.stderr,
        )
        return 2
    missed = 0
    for name in names or ALL:
        print(f"{name}")
        benchmark = importlib.import_module(f"benchmarks.{name}")
        if name == "peers" and not names and not benchmark.installed():
            print("  not installed: `scripts/bench peers` installs them")
            continue
        missed += report(benchmark.figures())
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
