"""Checking a file with pyright, in its standard mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kit.paths import ROOT

CONFIG = {"typeCheckingMode": "standard", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}


def type_faults(folder: Path, code: str) -> list[str]:
    """Pyright's faults in a file: each with its line number and a sentence."""
    (folder / "agent.py").write_text(code, "utf-8")
    (folder / "pyrightconfig.json").write_text(json.dumps(CONFIG))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(folder),
    ]
    environ = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env=environ, cwd=folder
    )
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] == 1, done.stderr
    return [f"{each['range']['start']['line'] + 1}: {each['message']}" for each in told["generalDiagnostics"]]
