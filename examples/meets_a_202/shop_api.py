"""An API that pays small refunds at once and asks a human about others; and a simulation of that human."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import AF_INET, IPPROTO_TCP, SOCK_STREAM, socket

import httpx2
import uvicorn
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

from askfirst.delivery.base import Notice
from askfirst.service.app import create_app
from askfirst.service.embedding import human_input_required, running, service_in

ASK_FROM = 2_000
BROWSER = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) the human of an example",
    "Accept": "text/html",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}


class Refund(BaseModel):
    """The body of a request to the API."""

    order: str
    cents: int


@dataclass(frozen=True, slots=True)
class Shop:
    """The running API: its URL, and the headers that a caller has to send."""

    url: str
    headers: dict[str, str] = field(repr=False)


@asynccontextmanager
async def shop() -> AsyncGenerator[Shop]:
    """The API on a free port of this machine, with a key for one agent."""
    with (
        tempfile.TemporaryDirectory(prefix="askfirst-shop-") as folder,
        socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) as listening,
    ):
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        hitl = create_app(f"sqlite:///{Path(folder) / 'shop.db'}", base_url=f"{url}/hitl")
        server = uvicorn.Server(
            uvicorn.Config(_api(hitl), log_config=None, access_log=False, timeout_graceful_shutdown=1)
        )
        async with running(hitl):
            key = await service_in(hitl).keys.issue("agent", by="example")
            serving = asyncio.create_task(server.serve([listening]))
            try:
                yield Shop(url, {"Authorization": f"Bearer {key.text}"})
            finally:
                server.should_exit = True
                await serving


def _api(hitl: FastAPI) -> FastAPI:
    app = FastAPI()
    app.mount("/hitl", hitl)

    async def refund(refund: Refund, request: Request) -> Response:
        if refund.cents < ASK_FROM:
            return Response(f'{{"paid": {refund.cents}}}', media_type="application/json")
        prompt = f"Refund {refund.cents / 100:.2f} EUR for {refund.order}?"
        return await human_input_required(
            hitl, request, type="approval", prompt=prompt, context=refund.model_dump()
        )

    app.post("/refunds")(refund)
    return app


async def human(notice: Notice) -> None:
    """A delivery that plays the human: opens the link and presses Approve. In production, use a messenger's."""
    if notice.kind != "review" or notice.review_url is None:
        return
    print(f"to the human: {notice.body}")
    async with httpx2.AsyncClient(headers=BROWSER, trust_env=False) as browser:
        page = await browser.get(notice.review_url)
        link, _, token = notice.review_url.partition("?")
        pressed = await browser.post(
            f"{link}/respond?{token}",
            data={"action": "approve"},
            headers={"Sec-Fetch-Site": "same-origin", "Origin": "null"},
        )
    print(f"the human: opens the page ({page.status_code}), presses Approve ({pressed.status_code})")
