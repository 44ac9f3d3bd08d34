"""The README's code as one file, as it says its blocks continue each other, under a type checker."""

from __future__ import annotations

import re
from pathlib import Path

from kit.paths import ROOT
from kit.typed_files import type_faults

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_readmes_code_passes_pyright(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
    assert len(blocks) >= 5
    assert type_faults(tmp_path, "\n\n".join(blocks)) == []


def test_what_does_not_fit_would_be_found(tmp_path: Path) -> None:
    code = "from askfirst import Agent\n\nAgent(model=5)\nawait_me = Agent(model='x').prompt('a').text\n"
    assert [each.partition(":")[0] for each in type_faults(tmp_path, code)] == ["3", "4"]
