"""Every example runs and prints what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

PRINTED = {
    "fifteen_lines.py": "We were out of tea. I ordered 5.\n",
    "streaming.py": """\
On it.\x20
  index: 1 of 4 files
  index: 2 of 4 files
  index: 3 of 4 files
  index: 4 of 4 files
  index: done
All four are indexed.
completed
28 events, the last with seq 27
""",
    "middleware.py": """\
read_customer: Ada Ngo, card **** 1234
send_mail: Mail goes to addresses at example.com only.
send_mail: sent to desk@example.com
I could not write to Ada herself, so the desk will call her.
""",
    "tools_by_hand.py": """\
ok - DE1234
error - The arguments of transfer are invalid, so it was not run. account: String should match pattern \
'^[A-Z]{2}\\d{4}$'. It takes a JSON object with: account, cents, speed (optional).
ok - 49.00 sent to DE1234
Done.
""",
}


def test_no_example_is_forgotten() -> None:
    """The demo has tests of its own, in test_demo.py."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*PRINTED, "demo.py"}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (PRINTED[name], "", 0)
