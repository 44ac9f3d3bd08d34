"""A decision on hold when its server is killed takes effect through another server, once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from kit.own_databases import OwnDatabases
from kit.patience import PATIENCE
from kit.running_service import BROWSER, until
from kit.service_processes import Nursery, is_alive
from kit.stores import SERVERS, Fresh
from kit.throwaway_servers import free_port

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.service.audit import export
from askfirst.service.keys import Keys

pytestmark = pytest.mark.anyio
HOLD = 2.0
FORM = {**BROWSER, "Sec-Fetch-Site": "same-origin", "Origin": "null"}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


@pytest.fixture
def databases(
    request: pytest.FixtureRequest, tmp_path: Path, fresh_databases: Fresh
) -> Iterator[OwnDatabases]:
    """Databases for one test. If a server cannot be reached, the test is skipped, or fails in CI."""
    if request.node.callspec.params["store"] in SERVERS:
        fresh_databases.address(request.node.callspec.params["store"])
    with OwnDatabases(tmp_path) as own:
        yield own


async def answers(http: httpx2.AsyncClient) -> None:
    """Wait until a server listens."""

    async def is_there() -> bool:
        try:
            return (await http.get("/healthz")).status_code < 500
        except httpx2.TransportError:
            return False

    await until(is_there)


async def acts(store: SqlCheckpointer, case_id: str) -> list[str]:
    rows = [json.loads(line) async for line in export(store.engine)]
    return [row["act"] for row in rows if row["subject"] == case_id]


@pytest.mark.parametrize("store", ["sqlite", *SERVERS])
async def test_what_a_killed_server_held_goes_out_once(
    nursery: Nursery, databases: OwnDatabases, store: str
) -> None:
    url, port = await databases.new(store), free_port()
    async with (
        checkpointer_from_url(url) as open_store,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http,
    ):
        key = await Keys(open_store.engine).issue("agent", by="test")
        headers = {"Authorization": f"Bearer {key.text}"}
        first = nursery.start(url, port, hold=HOLD)
        others: list[int] = []
        try:
            await answers(http)
            body = {"type": "approval", "prompt": "Pay?"}
            hitl = (await http.post("/v1/reviews", json=body, headers=headers)).json()["hitl"]
            token = parse_qs(urlsplit(hitl["review_url"]).query)["token"][0]
            respond = f"/review/{hitl['case_id']}/respond?token={token}"
            sent = await http.post(respond, data={"action": "approve", "nonce": "n"}, headers=FORM)
            os.kill(first, signal.SIGKILL)
            assert sent.status_code == 303
            assert "case.answered" not in await acts(open_store, hitl["case_id"])
            await until(lambda: _gone(first))
            # Two other servers, which both look for due decisions.
            others = [nursery.start(url, port, hold=HOLD), nursery.start(url, free_port(), hold=HOLD)]
            await answers(http)

            async def completed() -> dict[str, Any] | None:
                polled = (await http.get(hitl["poll_url"], headers=headers)).json()
                return polled if polled.get("status") == "completed" else None

            polled = await until(completed)
            assert polled["result"]["action"] == "approve"
            found = await acts(open_store, hitl["case_id"])
            assert [act for act in found if act in ("case.held", "case.released", "case.answered")] == [
                "case.held",
                "case.released",
                "case.answered",
            ]
        finally:
            for pid in others:
                os.kill(pid, signal.SIGKILL)


async def _gone(pid: int) -> bool:
    await asyncio.sleep(0)
    return not is_alive(pid)
