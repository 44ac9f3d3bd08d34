"""Compiled once, not once for every process that the tests start.

An environment that keeps Python from writing bytecode, as containers do, means the source tree: there is none
beside it here either. Imported first, by conftest.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.dont_write_bytecode:
    FOLDER = str(Path(sys.prefix, "tests-bytecode"))
    sys.dont_write_bytecode = False
    sys.pycache_prefix = FOLDER
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = FOLDER
