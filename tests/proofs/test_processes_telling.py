"""`askfirst serve` as a user runs it: an askfirst.toml, a mail server, a decision, and the mail about the
decision."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from kit.cli_rig import CLEAN
from kit.patience import PATIENCE
from kit.post_office import post_office
from kit.running_service import until
from kit.stores import approval, asked

from askfirst.checkpointer.connect import checkpointer_from_url

pytestmark = pytest.mark.anyio
CONFIGURATION = """\
[service]
port = {port}

[notify]
then = "mail:boss@a.example at 99 %"

[delivery.mail]
kind = "email"
to = "ann@a.example"
smtp_url_file = "smtp-url"
"""


async def test_serve_reads_the_file_and_tells_people(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"sqlite:///{tmp_path}/askfirst.db"
    async with post_office() as office, checkpointer_from_url(url) as store:
        (tmp_path / "askfirst.toml").write_text(CONFIGURATION.format(port=port))
        (tmp_path / "smtp-url").write_text(office.url())
        await asked(store, "t", approval())
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "askfirst.cli", "serve"],
            cwd=tmp_path,
            env={
                **CLEAN,
                "ASKFIRST_DATABASE_URL": url,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            stderr=subprocess.PIPE,
        )
        try:

            async def is_told() -> bool:
                assert process.poll() is None
                return bool(office.mails)

            await until(is_told)
            body = office.mails[0].get_body(("plain",))
            assert body is not None
            link = re.search(rf"http://127\.0\.0\.1:{port}/review/\S+", body.get_content())
            assert link is not None
            async with httpx2.AsyncClient(timeout=PATIENCE) as http:
                assert (await http.get(link[0])).status_code == 200
            await store.settle("t", "call-1", {"decision": "approve"}, by="ann", via="cli")

            async def is_ended() -> bool:
                return len(office.mails) == 2

            await until(is_ended)
        finally:
            process.kill()
            _, logged = await asyncio.to_thread(process.communicate)
        assert office.mails[1]["In-Reply-To"] == office.mails[0]["Message-ID"]
        assert b"token=" not in logged
        assert b"pass" not in logged
