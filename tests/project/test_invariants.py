"""What names tests names those that exist: tests/README.md, whose table has a row for each invariant, and the files
that conftest.py begins with."""

from __future__ import annotations

import ast
import re

import pytest
from kit.paths import ROOT, TESTS

ROW = re.compile(r"^\| (\d+)\. ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
ROWS = ROW.findall((TESTS / "README.md").read_text())
DESIGN = ROOT.parent / "shared" / "DESIGN.md"


def test_every_invariant_has_a_row() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 15))


@pytest.mark.skipif(not DESIGN.is_file(), reason="the design is not here")
def test_the_rows_are_those_of_the_design() -> None:
    _, _, rest = DESIGN.read_text().partition("\n## Invariants")
    listed = re.findall(r"^(\d+)\. \*\*(.+?)\.\*\*", rest.partition("\n## ")[0], re.MULTILINE)
    assert [(number, title) for number, title, _ in ROWS] == listed


@pytest.mark.parametrize(("title", "tests"), [row[1:] for row in ROWS], ids=[row[1] for row in ROWS])
def test_every_row_names_tests_that_exist(title: str, tests: str) -> None:
    named = NAMED.findall(tests)
    assert len(named) == tests.count("`") // 2 >= 1
    for path, name in named:
        defined = [
            node.name
            for node in ast.walk(ast.parse((TESTS / path).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        ]
        assert defined, path
        assert not name or name in defined, f"{path}::{name}"


def test_every_test_file_that_the_page_names_exists() -> None:
    there = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]
    named = set(re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::\w+)?`", (TESTS / "README.md").read_text()))
    assert len(named) > 50
    assert [name for name in sorted(named) if not any(f"/{it}".endswith(f"/{name}") for it in there)] == []


def test_the_files_that_come_first_exist() -> None:
    _, _, rest = (TESTS / "conftest.py").read_text().partition("\nLONGEST = (")
    named = re.findall(r'"([\w/]+\.py)"', rest.partition("\n)")[0])
    assert len(named) > 20
    assert [name for name in named if not (TESTS / name).is_file()] == []
