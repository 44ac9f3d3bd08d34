"""The checklist of docs/reference/hitl-checklist.md: every box is there, and each names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from kit.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "hitl-checklist.md"
SEEDS = ROOT.parent / "shared" / "seeds"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
BOXES = {
    "Polling, the least an agent does": 8,
    "Events": 4,
    "Callbacks": 5,
    "Rounds": 4,
    "Forms": 6,
    "Reminders": 4,
    "Ways to deliver a link": 3,
    "What an agent does not do": 5,
}
"""The tables of the page, and how many boxes each has in the original."""


def rows() -> dict[str, list[list[str]]]:
    """The rows of each table, by the heading above it."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        table = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
        if table:
            found[title] = table[1:]
    return found


ALL = [(title, *row) for title, table in rows().items() for row in table]


def functions_in(path: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, functions)}


def test_every_box_is_there() -> None:
    assert {title: len(table) for title, table in rows().items()} == BOXES


@pytest.mark.parametrize(("title", "box", "how", "tests"), ALL, ids=[row[1] for row in ALL])
def test_every_box_is_ticked_by_tests_that_exist(title: str, box: str, how: str, tests: str) -> None:
    named = NAMED.findall(tests)
    assert named
    assert NAMED.sub("", tests).strip(", ") == ""
    assert box.startswith("✓ " if title != "What an agent does not do" else "✗ ")
    for path, name in named:
        assert name.startswith("test_")
        assert name in functions_in(ROOT / path), f"{path} has no {name}"


def originals() -> dict[str, list[str]]:
    """The boxes of the seed, by its headings."""
    (seed,) = SEEDS.glob("004*.txt")
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", seed.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        boxes = re.findall(r"^- (?:\[ \] )?\*\*(.+?)\*\*", text, re.MULTILINE)
        if boxes:
            found[title] = boxes
    return found


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the seed documents are not beside this checkout")
def test_the_boxes_are_those_of_the_original() -> None:
    """As many, in the same order, and each with the names in code type that the original's has."""
    tables = [table for title, table in rows().items() if title != "Ways to deliver a link"]
    theirs = list(originals().values())
    assert [len(table) for table in tables] == [len(boxes) for boxes in theirs]
    for table, boxes in zip(tables, theirs, strict=True):
        for (box, *_), original in zip(table, boxes, strict=True):
            assert set(re.findall(r"`([^`]+)`", original)) <= set(re.findall(r"`([^`]+)`", box)), original
