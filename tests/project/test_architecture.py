"""docs/project/architecture.md and CONTRIBUTING.md name the packages, modules and layers that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
PACKAGE = ROOT / "askfirst"
PAGE = ROOT / "docs" / "project" / "architecture.md"
LINTER: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def between(marker: str) -> list[list[str]]:
    """The names of each line of the list between two marker comments."""
    text = PAGE.read_text()
    start, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    assert text.count(start) == text.count(end) == 1, f"architecture.md needs one list of {marker}"
    lines = text.partition(start)[2].partition(end)[0].strip().splitlines()
    return [re.findall(r"`(\w+)`", line.removeprefix("- ").partition(":")[0]) for line in lines]


def names_in(contract: dict[str, Any]) -> list[list[str]]:
    """The dotted names of a contract's layers, highest first; siblings together."""
    [container] = contract.get("containers", [PACKAGE.name])
    found = [re.findall(r"[\w.]+", layer) for layer in contract["layers"]]
    return [[f"{container}.{name.removeprefix(f'{container}.')}" for name in layer] for layer in found]


def layers() -> list[list[str]]:
    """The layers of the package."""
    [contract] = [each for each in LINTER["contracts"] if each["name"] == "Layers point one way"]
    return [[name.removeprefix(f"{PACKAGE.name}.") for name in layer] for layer in names_in(contract)]


def modules() -> set[str]:
    """Every package and module at the top of the tree."""
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    return packages | {path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__"}


def exists(dotted: str) -> bool:
    """Whether a name such as ``askfirst.agent.gate`` is that of a package or module."""
    path = ROOT.joinpath(*dotted.split("."))
    return (path / "__init__.py").is_file() or path.with_suffix(".py").is_file()


def test_the_layers_are_those_of_the_contract() -> None:
    assert between("layers") == layers()


def test_every_package_and_module_has_its_line() -> None:
    named = [name for line in between("layers") for name in line]
    assert len(named) == len(set(named)), "a name has two lines"
    assert set(named) == modules(), "give each a line in architecture.md"


def test_the_contracts_name_what_is_there() -> None:
    layered = [each for each in LINTER["contracts"] if each["type"] == "layers"]
    named = [name for each in layered for layer in names_in(each) for name in layer]
    named += [name for each in LINTER["contracts"] for name in each.get("forbidden_modules", [])]
    assert len(named) > len(modules())
    assert [name for name in named if not exists(name)] == []


def test_where_to_change_what_names_files_that_are_there() -> None:
    section = PAGE.read_text().partition("## Where do I change what")[2]
    paths = re.findall(r"`([\w/]+\.py)`", section)
    assert len(paths) > 30
    assert [path for path in paths if not (PACKAGE / path).is_file()] == []


def test_contributing_names_what_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    dotted = re.findall(r"\baskfirst(?:\.[a-z]\w*)+\b(?!\()", text)
    paths = re.findall(r"\b((?:askfirst|tests|docs|scripts|examples|requirements)/[\w./-]*\w)", text)
    assert [name for name in dotted if not exists(name)] == []
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert "docs/project/architecture.md" in paths


def test_the_tests_mirror_the_package_and_their_page_says_so() -> None:
    page = (ROOT / "tests" / "README.md").read_text()
    rows = re.findall(r"^\| (`\S+/`(?:, `\S+/`)*) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w/]+)/`", row)}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    others = {"proofs", "attacks", "project", "kit", "data", "service/pages", "adapters/frameworks"}
    assert named == folders | others
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).is_dir()] == []


def test_every_test_file_begins_with_the_noun_of_a_module() -> None:
    tests = ROOT / "tests"
    lost = [str(path.relative_to(tests)) for path in tests.rglob("test_*.py") if not has_its_noun(path)]
    assert sorted(lost) == [], "begin the name with that of the module under test: test_gate_digest.py"


def has_its_noun(test: Path) -> bool:
    """Whether a test file begins with the name of a module, or package, of the folder that it mirrors."""
    folder = test.parent.relative_to(ROOT / "tests")
    if folder.parts[:1] in {("proofs",), ("attacks",), ("project",)} or folder.name == "frameworks":
        return True
    mirrored = PACKAGE / folder
    nouns = {path.stem for path in mirrored.glob("*.py")} | {
        path.parent.name for path in mirrored.glob("*/*.py")
    }
    if folder.name == "checkpointer":  # the conformance suite: what a checkpointer keeps
        nouns |= {"checkpoints", "grants", "requests", "threads"}
    return any(f"{test.stem}_".startswith(f"test_{noun}_") for noun in nouns)
