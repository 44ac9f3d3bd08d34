"""The lock file of the application's image, and the software bill of materials (SBOM) of the image.

``python scripts/supply_chain.py check`` compares ``requirements/service.lock`` with ``pyproject.toml``, and writes a
CycloneDX SBOM to ``build/sbom.cdx.json``; ``lock UV`` writes the lock file again, with ``uv``. The lock file has
names, versions and hashes, and no address: pip's configuration says where packages come from.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "service.lock"
SBOM = ROOT / "build" / "sbom.cdx.json"
EXTRAS = ("cli", "delivery", "encryption", "mysql", "postgres", "service", "slack", "tracing", "yaml")
"""The extras in the image: the service, its command, every database and every delivery."""
HEADER = """\
# What the application's image installs: pip install --require-hashes -r requirements/service.lock
# Made by scripts/lock from pyproject.toml; scripts/check compares the two.
"""
_HASH = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Locked:
    """A package of the lock file; ``via`` are the packages that require it, which may include ``askfirst``."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]
    via: tuple[str, ...]


def read_lock(text: str) -> tuple[list[Locked], list[str]]:
    """The packages of a lock file, and the faults of its lines."""
    packages: list[Locked] = []
    faults: list[str] = []
    for block in _blocks(text):
        told = "\n".join(block)
        if "://" in told or any(re.match(r"\s*(-[a-z]|--(?!hash=))", line) for line in block):
            faults.append(f"{block[0].split()[0]}: a lock file has no address and no option of pip's")
            continue
        package = _package(block)
        if package is None:
            faults.append(f"{block[0].strip()}: is not pinned by ==, with a hash")
        else:
            packages.append(package)
    return packages, faults


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines of each package: the first is not indented, the following lines are."""
    block: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line[0].isspace() and block:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _package(block: Sequence[str]) -> Locked | None:
    try:
        requirement = Requirement(block[0].rstrip("\\ "))
    except InvalidRequirement:
        return None
    pins = list(requirement.specifier)
    hashes = tuple(found for line in block for found in _HASH.findall(line))
    if len(pins) != 1 or pins[0].operator != "==" or "*" in pins[0].version or not hashes:
        return None
    comments = [line.strip(" #") for line in block if line.strip().startswith("#")]
    via = [name.removeprefix("via").split("(")[0].strip() for name in comments]
    marker = None if requirement.marker is None else str(requirement.marker)
    return Locked(
        canonicalize_name(requirement.name),
        pins[0].version,
        marker,
        hashes,
        tuple(canonicalize_name(each) for each in via if each),
    )


def compare(packages: Sequence[Locked], project: Mapping[str, Any]) -> list[str]:
    """The requirements of ``pyproject.toml`` that the lock file does not meet, each as a sentence."""
    locked: dict[str, list[Locked]] = {}
    for package in packages:
        locked.setdefault(package.name, []).append(package)
    faults: list[str] = []
    for needed, requirement in _requirements(project):
        found = locked.get(canonicalize_name(requirement.name), [])
        if not found and needed:
            faults.append(f"{requirement.name} is not in the lock file: run scripts/lock")
        faults += [
            f"{each.name} {each.version} is locked, but pyproject.toml requires {requirement}: run scripts/lock"
            for each in found
            if not requirement.specifier.contains(each.version, prereleases=True)
        ]
    return faults


def _requirements(project: Mapping[str, Any]) -> Iterator[tuple[bool, Requirement]]:
    """Each requirement of the project, and whether the image needs it."""
    yield from ((True, Requirement(each)) for each in project["dependencies"])
    for extra, wanted in project["optional-dependencies"].items():
        for each in map(Requirement, wanted):
            if canonicalize_name(each.name) != project["name"]:
                yield extra in EXTRAS, each


def sbom(packages: Sequence[Locked], project: Mapping[str, Any]) -> dict[str, Any]:
    """The CycloneDX SBOM of the image; the same lock file gives the same SBOM."""
    root = f"pkg:pypi/{project['name']}@{project['version']}"
    refs = {each.name: _purl(each) for each in packages}
    needs: dict[str, list[str]] = {root: [], **{ref: [] for ref in refs.values()}}
    for package in packages:
        for wanting in package.via:
            whose = root if wanting == project["name"] else refs.get(wanting)
            if whose is not None:
                needs[whose].append(_purl(package))
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(sorted(f"{it.name}=={it.version}" for it in packages)))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "purl": root,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [_component(each) for each in packages],
        "dependencies": [{"ref": ref, "dependsOn": sorted(set(found))} for ref, found in needs.items()],
    }


def _purl(package: Locked) -> str:
    return f"pkg:pypi/{package.name}@{package.version}"


def _component(package: Locked) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(package),
        "name": package.name,
        "version": package.version,
        "purl": _purl(package),
        "properties": [{"name": "askfirst:distribution:sha256", "value": each} for each in package.hashes],
    }
    try:
        license_of = metadata.metadata(package.name).get("License-Expression")
    except metadata.PackageNotFoundError:  # for another platform
        license_of = None
    return component if not license_of else {**component, "licenses": [{"expression": license_of}]}


def project_of(root: Path = ROOT) -> dict[str, Any]:
    """The ``project`` table of ``pyproject.toml``."""
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]


def check() -> int:
    """Print the faults of the lock file, and write the SBOM; returns 1 if there are faults."""
    project = project_of()
    packages, faults = read_lock(LOCK.read_text("utf-8"))
    faults += compare(packages, project)
    for fault in faults:
        print(f"{LOCK.relative_to(ROOT)}: {fault}")
    SBOM.parent.mkdir(exist_ok=True)
    SBOM.write_text(json.dumps(sbom(packages, project), indent=2) + "\n", "utf-8")
    print(f"{len(packages)} packages in {SBOM.relative_to(ROOT)}")
    return 1 if faults else 0


def lock(uv: str) -> int:
    """Write the lock file again, for every platform and Python version that is supported."""
    extras = [part for extra in EXTRAS for part in ("--extra", extra)]
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header"]
    options += [
        "--no-emit-index-url",
        "--no-emit-find-links",
        "--upgrade",
        "--quiet",
        "--output-file",
        str(LOCK),
    ]
    done = subprocess.run([uv, "pip", "compile", "pyproject.toml", *options, *extras], cwd=ROOT, check=False)  # noqa: S603
    if done.returncode == 0:
        LOCK.write_text(HEADER + LOCK.read_text("utf-8"), "utf-8")
        return check()
    return done.returncode


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check"]:
            sys.exit(check())
        case ["lock", uv]:
            sys.exit(lock(uv))
        case _:
            sys.exit("usage: supply_chain.py check | lock UV")
