"""The table of attacks, printed at the end of a test run: how many were tried and how many held, by kind.

A test that attacks is marked ``@pytest.mark.attack("H1", "bodies without a credential")``: the finding it belongs
to (or several, ``"M2 L5"``), and the kind of attack, which is a row of the table. A test counts as one attack; a test
that tries several reports their number with the fixture ``attacks_tried``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

_KIND, _FINDING, _COUNT = "attack_kind", "attack_finding", "attacks_tried"


@pytest.fixture
def attacks_tried(request: pytest.FixtureRequest) -> Callable[[int], None]:
    """Report how many attacks this test tries; otherwise a test counts as one."""

    def say(count: int) -> None:
        request.node.user_properties.append((_COUNT, count))

    return say


def mark(items: list[pytest.Item]) -> None:
    """Store the marker's values on each test that attacks, so that reports of other processes carry them."""
    for item in items:
        marker = item.get_closest_marker("attack")
        if marker is not None:
            finding, kind = marker.args
            item.user_properties += [(_KIND, kind), (_FINDING, finding)]


def summarize(reporter: pytest.TerminalReporter) -> None:
    """Print the table, if attacks were tried."""
    tried: defaultdict[str, int] = defaultdict(int)
    held: defaultdict[str, int] = defaultdict(int)
    findings: defaultdict[str, set[str]] = defaultdict(set)
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, []):
            said = dict(getattr(report, "user_properties", ()))
            if _KIND in said and report.when == "call":
                kind, count = said[_KIND], said.get(_COUNT, 1)
                tried[kind] += count
                held[kind] += count if outcome == "passed" else 0
                findings[kind].update(said[_FINDING].split())
    if not tried:
        return
    reporter.write_sep("=", "Attacks")
    width = max(len(kind) for kind in tried)
    reporter.write_line(f"{'kind':<{width}}  {'tried':>6}  {'held':>6}  findings")
    for kind in sorted(tried):
        named = " ".join(sorted(findings[kind], key=_order))
        reporter.write_line(f"{kind:<{width}}  {tried[kind]:>6}  {held[kind]:>6}  {named}")
    reporter.write_line(f"{'all':<{width}}  {sum(tried.values()):>6}  {sum(held.values()):>6}")


def _order(finding: str) -> tuple[int, int]:
    return "HML".find(finding[0]), int(finding[1:]) if finding[1:].isdigit() else 0
