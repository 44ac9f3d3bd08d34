"""The table of what each framework's seam can do, against the adapters, their tests and their races."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from kit.framework_races import ROWS
from kit.paths import ROOT, TESTS

FRAMEWORKS = TESTS / "adapters" / "frameworks"
PAGES = ROOT / "docs" / "guide" / "frameworks"
PROTOCOLS = {"mcp"}  # the loop is the client's, and the page says which ways to wait each client has
LIVES = sorted({it.stem.removeprefix("lives_") for it in FRAMEWORKS.glob("lives_*.py")} - PROTOCOLS)
_ALONE, _RESUMED = "one of two answered", "resumed without an answer"


def rows() -> dict[str, list[str]]:
    """The cells of each framework's row, by the name of its adapter."""
    table = (PAGES / "index.md").read_text("utf-8").partition("<!-- seams -->\n")[2].partition("<!--")[0]
    found: dict[str, list[str]] = {}
    for line in table.splitlines()[2:]:
        first, *cells = [it.strip() for it in line.strip("|").split("|")]
        [page] = re.findall(r"\(([a-z-]+)\.md\)", first)
        found[page.replace("-", "_")] = cells
    return found


def unsupported(adapter: str) -> dict[str, str]:
    """The rows of the race table that a framework's life says it has no way to show."""
    for statement in ast.parse((FRAMEWORKS / f"lives_{adapter}.py").read_text("utf-8")).body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "UNSUPPORTED":
            assert statement.value is not None
            return dict(ast.literal_eval(statement.value))
    return {}


def modules(adapter: str) -> list[Path]:
    """The modules of an adapter: its own, and those that it alone imports."""
    folder = ROOT / "askfirst" / "adapters"
    text = (folder / f"{adapter}.py").read_text("utf-8")
    prefix = adapter.partition("_")[0]
    others = [path for path in folder.glob(f"{prefix}_*.py") if f"askfirst.adapters.{path.stem} " in text]
    return [folder / f"{adapter}.py", *others]


def yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def test_every_framework_with_races_has_a_row_and_a_page() -> None:
    assert sorted(rows()) == LIVES
    assert {_ALONE, _RESUMED} <= set(ROWS)
    for adapter in LIVES:
        assert (PAGES / f"{adapter.replace('_', '-')}.md").is_file()


@pytest.mark.parametrize("adapter", LIVES)
def test_the_row_says_what_the_adapter_does(adapter: str) -> None:
    tests = "".join(path.read_text("utf-8") for path in FRAMEWORKS.glob(f"test_{adapter}*.py"))
    own = [path.read_text("utf-8") for path in modules(adapter)]
    resumers = [
        it.name
        for it in ast.parse(own[0]).body
        if isinstance(it, ast.FunctionDef) and it.name.endswith("_resumer")
    ]
    _, edited, told, outlives, alone, resumer = rows()[adapter]
    assert edited == yes('"decision": "edit"' in tests)
    assert told == yes(any(re.search(r"\bnote\b", text) for text in own))
    assert outlives == yes(_RESUMED not in unsupported(adapter))
    assert alone == yes(_ALONE not in unsupported(adapter))
    assert resumer == (f"`{resumers[0]}`" if resumers else "none")
    assert "race_table(" in tests
    assert f'run_page("{adapter.replace("_", "-")}"' in tests


@pytest.mark.parametrize("adapter", LIVES)
def test_an_adapter_has_under_200_lines(adapter: str) -> None:
    assert len(modules(adapter)[0].read_text("utf-8").splitlines()) < 200
