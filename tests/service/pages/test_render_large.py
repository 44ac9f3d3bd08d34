"""No page grows with its case: every kind of case, with each thing in it that can be large, as large as it can be."""

from __future__ import annotations

import sys

import pytest
from kit.page_large import FILLS, GROUPS

HTML = 200_000
"""Bytes of HTML, for any input."""


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("group", GROUPS)
def test_every_page_is_below_200_kb(group: str, fill: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {name: len(scene.html().encode()) for name, scene in GROUPS[group](fill)}
    largest = max(sizes, key=lambda name: sizes[name])
    with capsys.disabled():
        sys.stdout.write(f"\n{group} of {fill}: {len(sizes)} pages, {sizes[largest]} B at most ({largest})\n")
    assert {name: size for name, size in sizes.items() if size > HTML} == {}
