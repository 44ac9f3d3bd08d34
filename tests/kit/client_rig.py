"""Our service on a real uvicorn, a client that calls it, and a person who reads what is delivered and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from askfirst.client import HitlClient
from askfirst.delivery.base import Notice
from kit.patience import PATIENCE
from kit.running_service import Agent, Opened, Served, serving


class Person:
    """A delivery (a plain async function of the notice) that records all notices, and can wait for more."""

    def __init__(self) -> None:
        self.told: list[Notice] = []
        self._more = asyncio.Event()

    async def __call__(self, notice: Notice) -> None:
        self.told.append(notice)
        self._more.set()

    @property
    def kinds(self) -> list[str]:
        return [notice.kind for notice in self.told]

    async def got(self, kind: str = "review", number: int = 1) -> Notice:
        """Wait for the notice of this kind with this number, counted from 1."""
        async with asyncio.timeout(PATIENCE):
            while self.kinds.count(kind) < number:
                self._more.clear()
                await self._more.wait()
        return [notice for notice in self.told if notice.kind == kind][number - 1]


@dataclass
class Rig:
    """A service, one of its agents, a client with that agent's key, and the person."""

    served: Served
    agent: Agent
    client: HitlClient
    person: Person

    @property
    def http(self) -> httpx2.AsyncClient:
        return self.served.http

    def ask(self, type: str = "approval", **fields: Any) -> asyncio.Task[Any]:
        """Open a case through the client, and wait for its outcome."""
        body = {"type": type, "prompt": "Please decide.", **fields}
        return asyncio.create_task(self.client.request("POST", f"{self.served.url}/v1/reviews", json=body))

    async def answer(self, notice: Notice, action: str, data: Any = None) -> None:
        """Submit the decision that the page would submit for the person."""
        assert notice.review_url is not None
        page = urlsplit(notice.review_url)
        said = {"action": action} if data is None else {"action": action, "data": data}
        done = await self.http.post(f"{page.path}/respond?{page.query}", json=said)
        assert done.status_code == 200, done.text

    async def case(self, notice: Notice) -> Opened:
        """The case as its page gets it."""
        hitl = {"case_id": notice.case_id, "review_url": notice.review_url, "submit_token": "none"}
        return Opened(self.agent, hitl)

    async def status(self, case_id: str) -> dict[str, Any]:
        return (await self.agent.get(f"/v1/reviews/{case_id}/status")).json()


@asynccontextmanager
async def rig(
    tmp_path: Path,
    *,
    service: dict[str, Any] | None = None,
    also: Callable[[Person], Any] | None = None,
    **options: Any,
) -> AsyncGenerator[Rig]:
    """Open a rig. ``service`` are the service's options, ``options`` the client's; ``also`` makes a delivery."""
    person = Person()
    async with serving(f"sqlite:///{tmp_path}/cases.db", **(service or {})) as served:
        agent = await served.agent()

        def bearer(request: httpx2.Request) -> httpx2.Request:
            request.headers.update(agent.headers)
            return request

        deliver = person if also is None else also(person)
        async with HitlClient(deliver=deliver, auth=bearer, **options) as client:
            yield Rig(served, agent, client, person)


async def until(check: Callable[[], object]) -> None:
    """Wait until a condition on the other side of a socket holds."""
    async with asyncio.timeout(PATIENCE):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
