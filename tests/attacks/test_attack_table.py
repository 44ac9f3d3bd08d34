"""Each finding of the security review has a test that is marked with it."""

from __future__ import annotations

import re

from kit.paths import TESTS

FINDINGS = {
    *(f"H{n}" for n in range(1, 6)),
    *(f"M{n}" for n in range(1, 13)),
    *(f"L{n}" for n in range(1, 13)),
}


def test_every_finding_has_a_test() -> None:
    marked: set[str] = set()
    for file in TESTS.rglob("test_*.py"):
        for said in re.findall(r"mark\.attack\(\s*\"([^\"]+)\"", file.read_text("utf-8")):
            marked.update(said.split())
    assert FINDINGS - marked == set()
