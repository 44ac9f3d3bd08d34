"""Known holes come in by no dependency: floors, the lock file of the image, and the list of what is in it (L12)."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kit.paths import ROOT
from packaging.requirements import Requirement
from packaging.version import Version

HOLES = {
    "starlette": ("0.49.0", "CVE-2025-62727"),
    "h11": ("0.15.0", "CVE-2025-43859"),
    "jinja2": ("3.1.5", "CVE-2025-27516"),
    "joserfc": ("1.4.1", "CVE-2025-65015"),
    "asyncmy": ("0.2.11", "CVE-2025-65896"),
    "cryptography": ("44.0.0", "CVE-2024-12797"),
    "requests": ("2.32.3", "CVE-2024-47081"),
    "urllib3": ("2.6.2", "CVE-2026-21441"),
}
"""Each library of ours, or one of theirs, that had a hole: the last version with it, and its name."""


@pytest.fixture(scope="module")
def supply_chain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("supply_chain", ROOT / "scripts" / "supply_chain.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["supply_chain"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def requirements(project: dict[str, Any]) -> list[Requirement]:
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return [Requirement(each) for group in groups for each in group]


@pytest.mark.attack("L12", "known holes in dependencies")
@pytest.mark.parametrize("name", HOLES)
def test_floors_exclude_known_holes(supply_chain: ModuleType, name: str) -> None:
    last, hole = HOLES[name]
    ours = [each for each in requirements(supply_chain.project_of()) if each.name == name]
    assert ours
    for requirement in ours:
        assert last not in requirement.specifier, (str(requirement), hole)
    assert hole in (ROOT / "docs" / "project" / "dependencies.md").read_text(), "the floor has its reason"


@pytest.mark.attack("L12", "known holes in dependencies")
def test_the_server_below_the_service_is_named_itself(supply_chain: ModuleType) -> None:
    """``uvicorn`` would do with an older h11, and ``fastapi`` before 0.120.1 with an older starlette only."""
    service = supply_chain.project_of()["optional-dependencies"]["service"]
    assert {"h11", "starlette"} <= {Requirement(each).name for each in service}
    (fastapi,) = [Requirement(each) for each in service if each.startswith("fastapi")]
    assert "0.119.0" not in fastapi.specifier


@pytest.mark.attack("L12", "known holes in dependencies")
def test_the_lock_has_hashes_and_no_address_and_fulfils_the_floors(supply_chain: ModuleType) -> None:
    text = supply_chain.LOCK.read_text("utf-8")
    packages, faults = supply_chain.read_lock(text)
    assert faults == []
    assert supply_chain.compare(packages, supply_chain.project_of()) == []
    assert "://" not in text
    assert re.search(r"index|find-links|trusted-host", text) is None
    locked = {each.name: each.version for each in packages}
    for name, (last, hole) in HOLES.items():
        assert Version(locked[name]) > Version(last), hole


HASH = "a" * 64
BAD = [
    (
        "starlette==0.48.0 \\\n    --hash=sha256:{hash}",
        "starlette 0.48.0 is locked, but pyproject.toml requires",
    ),
    ("starlette>=0.50 \\\n    --hash=sha256:{hash}", "is not pinned by =="),
    ("starlette==0.50.* \\\n    --hash=sha256:{hash}", "is not pinned by =="),
    ("starlette==0.50.0", "is not pinned by ==, with a hash"),
    ("--index-url https://packages.example/simple", "no address"),
    ("--trusted-host packages.example", "no address and no option"),
    ("-i packages.example", "no address and no option"),
    ("starlette @ https://packages.example/starlette.whl \\\n    --hash=sha256:{hash}", "no address"),
    ("starlette==0.50.0 \\\n    --hash=sha256:{hash} \\\n    --index-url=x", "no address and no option"),
]


@pytest.mark.attack("L12", "known holes in dependencies")
@pytest.mark.parametrize(("lines", "said"), BAD)
def test_a_lock_that_was_tampered_with_is_found(supply_chain: ModuleType, lines: str, said: str) -> None:
    packages, faults = supply_chain.read_lock(lines.format(hash=HASH))
    faults += supply_chain.compare(packages, supply_chain.project_of())
    assert any(said in fault for fault in faults), faults


def test_what_is_missing_from_the_lock_is_found(supply_chain: ModuleType) -> None:
    faults = supply_chain.compare([], supply_chain.project_of())
    assert "uvicorn is not in the lock file: run scripts/lock" in faults
    assert not any("pydantic-ai-slim" in fault for fault in faults), "the image calls no models"


@pytest.mark.attack("L12", "known holes in dependencies")
def test_the_list_names_all_that_is_locked(
    supply_chain: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attacks_tried: Callable[[int], None],
) -> None:
    monkeypatch.setattr(supply_chain, "SBOM", ROOT / "build" / f"{tmp_path.name}.cdx.json")
    try:
        assert supply_chain.check() == 0
        written = json.loads(supply_chain.SBOM.read_text("utf-8"))
    finally:
        supply_chain.SBOM.unlink(missing_ok=True)
    assert (written["bomFormat"], written["specVersion"], written["version"]) == ("CycloneDX", "1.6", 1)
    packages, _ = supply_chain.read_lock(supply_chain.LOCK.read_text("utf-8"))
    assert {(each["name"], each["version"]) for each in written["components"]} == {
        (each.name, each.version) for each in packages
    }
    for each in written["components"]:
        assert each["purl"] == each["bom-ref"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["properties"], "its hashes"
    graph = {each["ref"]: each["dependsOn"] for each in written["dependencies"]}
    root = written["metadata"]["component"]["bom-ref"]
    assert any(ref.startswith("pkg:pypi/starlette@") for ref in graph[root])
    reached, left = set[str](), [root]
    while left:
        ref = left.pop()
        if ref not in reached:
            reached.add(ref)
            left += graph[ref]
    assert reached == set(graph), "everything is there for something"
    assert written == supply_chain.sbom(packages, supply_chain.project_of()), "the same lock, the same list"
    attacks_tried(len(packages))
