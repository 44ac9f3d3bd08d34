"""The service within somebody's own application, and 202 from their own routes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import FastAPI, Request, Response
from kit.running_service import BROWSER, SECRET, fits, listening

from askfirst.errors import CaseNotFound, InvalidReview, ServiceError
from askfirst.protocol import HumanInputRequired, PollResponse
from askfirst.service.app import create_app
from askfirst.service.embedding import human_input_required, review_link, running
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio
USERS = {"ann-token": "ann", "bob-token": "bob"}


async def authenticate(request: Request) -> str | None:
    """The application's own way to know its callers."""
    return USERS.get(request.headers.get("x-token", ""))


def host(url: str, folder: Path, *, own_lifespan: bool = False, **options: Any) -> FastAPI:
    """An application with the service in it."""
    hitl = create_app(
        f"sqlite:///{folder}/cases.db", base_url=f"{url}/hitl", secret=SECRET, hold_seconds=0, **options
    )
    if own_lifespan:

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
            async with running(hitl):
                app.state.ready = True
                yield

        app = FastAPI(lifespan=lifespan)
    else:
        app = FastAPI(lifespan=lambda app: running(hitl))
    app.mount("/hitl", hitl)
    app.state.hitl = hitl

    @app.post("/deploy")
    async def deploy(request: Request) -> Response:
        body = await request.json()
        return await human_input_required(
            hitl,
            request,
            type="approval",
            prompt="Deploy v2.4.0?",
            data={"version": "2.4.0"},
            idempotency_key=request.headers.get("idempotency-key"),
            hitl_callback_url=body.get("hitl_callback_url"),
        )

    @app.post("/wrong")
    async def wrong(request: Request) -> Response:
        return await human_input_required(hitl, request, type="nonsense", prompt="")

    return app


@pytest.mark.parametrize("own_lifespan", [False, True])
async def test_a_route_of_ones_own_asks_a_person(tmp_path: Path, own_lifespan: bool) -> None:
    make = lambda url: host(url, tmp_path, own_lifespan=own_lifespan, authenticate=authenticate)  # noqa: E731
    async with listening(make) as (url, _), httpx2.AsyncClient(base_url=url) as http:
        ann, bob = {"X-Token": "ann-token"}, {"X-Token": "bob-token"}
        answer = await http.post("/deploy", json={}, headers=ann)
        assert answer.status_code == 202
        body = fits(HumanInputRequired, answer.json())
        assert body["data"] == {"version": "2.4.0"}
        hitl = body["hitl"]
        assert hitl["poll_url"].startswith(f"{url}/hitl/v1/reviews/")
        assert (await http.get(hitl["poll_url"], headers=bob)).status_code == 404
        assert (await http.get(hitl["poll_url"])).status_code == 401
        page = await http.get(hitl["review_url"], headers=BROWSER)
        assert page.status_code == 200
        assert 'href="/hitl/static/' in page.text
        style = page.text.partition('href="/hitl/static/')[2].partition('"')[0]
        assert (await http.get(f"/hitl/static/{style}")).status_code == 200
        split = urlsplit(hitl["review_url"])
        sent = await http.post(
            f"{split.path}/respond?{split.query}",
            data={"action": "approve"},
            headers={**BROWSER, "Sec-Fetch-Site": "same-origin", "Origin": url},
        )
        assert sent.status_code == 303
        assert (await http.get(sent.headers["location"], headers=BROWSER)).status_code == 200
        polled = await http.get(hitl["poll_url"], headers=ann)
        assert fits(PollResponse, polled.json())["result"]["action"] == "approve"


async def test_nobody_is_asked_for_a_caller_that_is_not_known(tmp_path: Path) -> None:
    make = lambda url: host(url, tmp_path, authenticate=authenticate)  # noqa: E731
    async with listening(make) as (url, app), httpx2.AsyncClient(base_url=url) as http:
        assert (await http.post("/deploy", json={})).status_code == 401
        assert await app.state.hitl.state.service.cases.engine.read(case_store.open_count) == 0
        refused = await http.post(
            "/deploy", json={"hitl_callback_url": "https://10.0.0.1/"}, headers={"X-Token": "ann-token"}
        )
        assert refused.status_code == 422
        assert "hitl_callback_url" in refused.json()["faults"]


async def test_api_keys_work_on_routes_of_ones_own_too(tmp_path: Path) -> None:
    async with (
        listening(lambda url: host(url, tmp_path)) as (url, app),
        httpx2.AsyncClient(base_url=url) as http,
    ):
        key = await app.state.hitl.state.service.keys.issue("agent", by="test")
        headers = {"Authorization": f"Bearer {key.text}", "Idempotency-Key": "once"}
        first, again = [await http.post("/deploy", json={}, headers=headers) for _ in range(2)]
        assert first.json()["hitl"]["case_id"] == again.json()["hitl"]["case_id"]
        assert (await http.get(first.json()["hitl"]["poll_url"], headers=headers)).status_code == 200


async def test_a_review_that_is_none_is_the_developers_mistake(tmp_path: Path) -> None:
    app = create_app(f"sqlite:///{tmp_path}/c.db", base_url="https://a.example", authenticate=authenticate)
    request = Request({"type": "http", "headers": [(b"x-token", b"ann-token")], "method": "GET", "path": "/"})
    async with running(app):
        with pytest.raises(InvalidReview, match="type"):
            await human_input_required(app, request, type="nonsense", prompt="p")
        with pytest.raises(CaseNotFound):
            await review_link(app, "review_unknown")
    with pytest.raises(ServiceError, match="not open"):
        await review_link(app, "review_unknown")


async def test_a_service_can_be_opened_again(tmp_path: Path) -> None:
    app = create_app(f"sqlite:///{tmp_path}/c.db", base_url="https://a.example")
    for _ in range(2):
        async with running(app):
            assert await app.state.service.cases.engine.read(case_store.open_count) == 0
