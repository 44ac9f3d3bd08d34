"""Where things are in the repository."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
DATA = TESTS / "data"


def with_kit() -> dict[str, str]:
    """The environment of a process that runs a module of the kit: ``python -m kit.audit_linker``."""
    found = [str(TESTS), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found)}
