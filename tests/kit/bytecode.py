"""A separate folder for bytecode, so that modules are compiled once and not in every process that tests start.

If the environment forbids Python to write bytecode, as containers do, the ban is meant for the source tree, where
nothing is written. conftest.py imports this module first. As a program it prints the folder, and links the bytecode
that the libraries were installed with into it.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(sys.prefix, "tests-bytecode")


def begin() -> None:
    """Link existing bytecode to where Python looks for it when ``sys.pycache_prefix`` is the folder."""
    FOLDER.mkdir()
    for library in {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}:
        for cache in Path(library).rglob("__pycache__"):
            if {"site-packages", "test"} & {*cache.relative_to(library).parts}:  # those beside Python's own
                continue
            place = Path(f"{FOLDER}{cache.parent}")
            place.mkdir(parents=True, exist_ok=True)
            for compiled in cache.glob(f"*.{sys.implementation.cache_tag}.pyc"):
                try:
                    os.link(compiled, place / compiled.name)
                except OSError:  # another disk, or somebody else's file
                    shutil.copyfile(compiled, place / compiled.name)


if __name__ == "__main__":
    if not FOLDER.exists():
        begin()
    print(FOLDER)  # noqa: T201
elif sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(FOLDER)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(FOLDER)
