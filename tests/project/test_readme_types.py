"""The README's code as one file, as it says its blocks continue each other, under a type checker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.paths import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONFIG = {"typeCheckingMode": "standard", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}


def checked(folder: Path, code: str) -> list[str]:
    """What pyright, in its standard mode, finds wrong with a file."""
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


@pytest.mark.timeout(600)  # it may have the machine to share with all other tests
def test_the_readmes_code_passes_pyright(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
    assert len(blocks) >= 5
    assert checked(tmp_path, "\n\n".join(blocks)) == []


@pytest.mark.timeout(600)
def test_what_does_not_fit_would_be_found(tmp_path: Path) -> None:
    code = "from askfirst import Agent\n\nAgent(model=5)\nawait_me = Agent(model='x').prompt('a').text\n"
    assert [each.partition(":")[0] for each in checked(tmp_path, code)] == ["3", "4"]
