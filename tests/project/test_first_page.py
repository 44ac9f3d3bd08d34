"""The first page of the documentation, word for word: from an empty folder to an approval on a page, in ten lines."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
from kit.cli_rig import command
from kit.page_text import Page
from kit.paths import ROOT
from kit.patience import PATIENCE

PAGE = (ROOT / "docs/guide/guard.md").read_text("utf-8")
BLOCKS = re.findall(r"^```([^\n]*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
INSTALL, APP, RUN = BLOCKS[:3]


def test_it_is_ten_lines() -> None:
    lines = [line for _, text in (INSTALL, APP, RUN) for line in text.splitlines() if line.strip()]
    assert len(lines) == 10
    assert lines[0] == 'pip install "askfirst[service]"'
    assert APP[1] == (ROOT / "examples/ten_lines.py").read_text("utf-8")
    assert [line.partition("#")[0].strip() for line in RUN[1].splitlines()] == [
        "python app.py",
        "askfirst serve",
        "askfirst link",
    ]
    assert (ROOT / "docs/index.md").read_text("utf-8").index("guide/guard.md") < 1000, "it is the first page"


@contextmanager
def running(arguments: list[str], folder: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(  # noqa: S603
        arguments, cwd=folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def soon(attempt: Callable[[], str | None], what: str) -> str:
    deadline = time.monotonic() + PATIENCE
    while (found := attempt()) is None:
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.1)
    return found


def test_its_lines_lead_to_an_approval_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP[1], "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    base_url = f"http://127.0.0.1:{port}"  # the page's own is port 8000, which somebody may use here
    environ = {**os.environ, "ASKFIRST_BASE_URL": base_url, "PYTHONPATH": str(ROOT)}
    environ.pop("ASKFIRST_DATABASE_URL", None)

    def link() -> str | None:
        made = subprocess.run(  # noqa: S603
            [*command(), "link"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        return made.stdout.strip() if made.returncode == 0 else None

    def page() -> str | None:
        try:
            return http.get(address).raise_for_status().text
        except httpx2.TransportError:
            return None

    with ExitStack() as stack:
        app = stack.enter_context(running([sys.executable, "app.py"], tmp_path, environ))
        stack.enter_context(running([*command(), "serve", "--port", str(port)], tmp_path, environ))
        http = stack.enter_context(httpx2.Client(base_url=base_url, follow_redirects=True))
        address = soon(link, "a link")
        assert address.startswith(f"{base_url}/review/")
        shown = soon(page, "the page")
        assert "A-1042" in shown
        [target] = re.findall(r'<form[^>]* action="([^"]+)"', shown)
        fields = {**Page(shown).fields(), "action": ["approve"]}
        http.post(target, data=fields, headers={"Sec-Fetch-Site": "same-origin"}).raise_for_status()
        printed, complaints = app.communicate(timeout=PATIENCE)
    assert (printed, complaints, app.returncode) == ("paid 4900 cents for A-1042\n", "", 0)
