"""The guides' examples: each framework's tool awaits a human through the page of a running service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from kit.paths import ROOT
from kit.patience import PATIENCE

EXAMPLES = ROOT / "examples" / "meets_a_202"
GUIDE = ROOT / "docs" / "guide" / "client.md"
NEEDS = {
    "with_askfirst.py": "askfirst",
    "with_langgraph.py": "langgraph",
    "with_openai_agents.py": "agents",
    "with_pydantic_ai.py": "pydantic_ai",
}
"""What each example imports; a framework that is no dependency of ours may be absent."""
BLOCK = re.compile(r"^```(python no-run|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def guide() -> dict[str, list[str]]:
    """The blocks of the guide: code, and what programs print."""
    found: dict[str, list[str]] = {"python no-run": [], "text": []}
    for kind, text in BLOCK.findall(GUIDE.read_text()):
        found[kind].append(text)
    return found


def test_no_example_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"shop_api.py", *NEEDS}


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs_and_prints_what_the_guide_says(name: str, tmp_path: Path) -> None:
    if find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed; it is no dependency of ours")
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
        timeout=10 * PATIENCE,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert "presses Approve (303)" in done.stdout
    assert done.stdout in guide()["text"]


def test_the_guide_shows_the_examples_as_they_are() -> None:
    sources = "".join(path.read_text() for path in EXAMPLES.glob("*.py"))
    shown = guide()["python no-run"]
    assert len(shown) == len(NEEDS)
    for code in shown:
        assert code in sources
