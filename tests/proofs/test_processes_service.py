"""Several servers on one database, each in a separate process, act as one service."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from kit.patience import PATIENCE
from kit.service_processes import Nursery
from kit.throwaway_servers import free_port

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.service.keys import Keys

pytestmark = pytest.mark.anyio
BODY = {"type": "approval", "prompt": "May I?"}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


async def test_a_case_is_polled_sixty_times_a_minute_and_a_revoked_key_is_nobodys(
    nursery: Nursery, tmp_path: Path
) -> None:
    url, ports = f"sqlite:///{tmp_path}/cases.db", [free_port() for _ in range(3)]
    async with checkpointer_from_url(url) as store:
        keys = Keys(store.engine)
        key = await keys.issue("agent", by="test")
        headers = {"Authorization": f"Bearer {key.text}"}
        pids = [nursery.start(url, port) for port in ports]
        try:
            async with httpx2.AsyncClient(timeout=PATIENCE, headers=headers) as http:
                bases = [f"http://127.0.0.1:{port}" for port in ports]
                for base in bases:
                    await _up(http, base)
                opened = await http.post(f"{bases[0]}/v1/reviews", json=BODY)
                path = f"/v1/reviews/{opened.json()['hitl']['case_id']}/status"
                answers = [await http.get(bases[place % 3] + path) for place in range(66)]
                assert [answer.status_code for answer in answers] == [200] * 60 + [429] * 6
                assert {0 < int(answer.headers["retry-after"]) <= 60 for answer in answers[60:]} == {True}
                assert await keys.revoke(key.key_id, by="test")
                for base in bases:
                    assert (await http.get(base + path)).status_code == 401
                    assert (await http.get(base + path.replace("status", "events"))).status_code == 401
                    assert (await http.post(f"{base}/v1/reviews", json=BODY)).status_code == 401
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


async def _up(http: httpx2.AsyncClient, base: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await http.get(f"{base}/readyz")
                return
            except httpx2.TransportError:
                await asyncio.sleep(0.05)
