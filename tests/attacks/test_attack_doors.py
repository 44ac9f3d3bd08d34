"""The doors of the service: who calls is known before anything is read of what they send."""

from __future__ import annotations

import asyncio
import gc
import re
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from kit.hostile_corpus import BIGGEST, BODIES
from kit.patience import PATIENCE
from starlette.routing import Mount

from askfirst.protocol import issue_token
from askfirst.service.app import create_app
from askfirst.service.embedding import running, service_in
from askfirst.store import sqlite_engine

pytestmark = pytest.mark.anyio
LOOP_SECONDS = 0.05
MEMORY = 20_000_000
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BASE = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FastAPI]:
    made = create_app(f"sqlite:///{tmp_path_factory.mktemp('doors')}/cases.db", base_url=BASE)
    async with running(made):
        yield made


@pytest.fixture(scope="module")
async def http(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        yield client


@pytest.fixture(scope="module")
async def key(app: FastAPI) -> dict[str, str]:
    issued = await service_in(app).keys.issue("agent", by="test")
    return {"Authorization": f"Bearer {issued.text}"}


async def opened(http: httpx2.AsyncClient, key: dict[str, str], **more: Any) -> dict[str, Any]:
    body = {"type": "approval", "prompt": "Please decide.", **more}
    answer = await http.post("/v1/reviews", json=body, headers=key)
    assert answer.status_code == 202, answer.text
    return answer.json()["hitl"]


def routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Every method and path of the application, and one path that leads nowhere."""
    waiting: list[Any] = list(app.routes)
    found = 0
    for route in waiting:  # it grows
        if isinstance(route, APIRoute):
            yield from ((method, route.path) for method in sorted(route.methods))
            found += 1
        elif isinstance(route, Mount):
            yield from ((method, f"{route.path}/page.css") for method in METHODS)
        else:
            waiting += route.original_router.routes  # a router that was included; anything else has none
    assert found >= len(app.openapi()["paths"])
    yield from ((method, "/nowhere") for method in METHODS)


class Sender:
    """Sends a body piece by piece, as a server hands it on, and counts how much was taken."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.taken = 0

    async def receive(self) -> dict[str, Any]:
        if self.taken == len(self.body):
            await asyncio.Event().wait()  # nobody hangs up
        piece = self.body[self.taken : self.taken + 65_536]
        self.taken += len(piece)
        return {"type": "http.request", "body": piece, "more_body": self.taken < len(self.body)}


async def send(
    app: FastAPI, method: str, path: str, body: bytes, headers: dict[str, str], query: str = ""
) -> tuple[int, int, int]:
    """Send a request: the status, how many bytes came back, and how many were taken."""
    sender = Sender(body)
    status = back = 0

    async def hear(message: dict[str, Any]) -> None:
        nonlocal status, back
        status = message.get("status", status)
        back += len(message.get("body", b""))

    head = {"content-length": str(len(body)), "host": "127.0.0.1:8000", **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in head.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
    await app(scope, sender.receive, hear)
    return status, back, sender.taken


@pytest.mark.attack("H1 L10", "bodies of the greatest size without a credential")
async def test_a_body_without_a_credential_costs_next_to_nothing_at_any_route(
    app: FastAPI, http: httpx2.AsyncClient, key: dict[str, str], attacks_tried: Callable[[int], None]
) -> None:
    case = await opened(http, key, context={"text": "x" * 1_900_000})
    wrong = {"Authorization": f"Bearer askfirst_{issue_token('review')}"}
    made = {name: (kind, make()) for name, (kind, make) in BODIES.items()}
    assert max(len(body) for _, body in made.values()) > BIGGEST * 0.9
    count = 0
    slow: list[str] = []
    for method, template in routes(app):
        path = template.replace("{case_id}", case["case_id"]).replace("{thread_id:path}", "order-7")
        assert "{" not in path, "say what stands here in a test of this route"
        for name, (kind, body) in made.items():
            headers = {"content-type": kind, **(wrong if count % 2 else {})}
            query = f"token={issue_token('review')}"
            count += 1
            seconds = LOOP_SECONDS
            for _ in range(3):  # the least of a few counts: the process has other things to do, too
                begin = time.thread_time()
                status, back, taken = await send(app, method, path, body, headers, query)
                seconds = time.thread_time() - begin
                if seconds < LOOP_SECONDS:
                    break
            assert status < 500, (method, path, name, status)
            if method != "GET" or not path.startswith("/static"):  # there it is read in passing, by Starlette
                assert taken == 0, (method, path, name, "was read though nobody may send it")
            assert back < 100_000, (method, path, name, back)
            if seconds >= LOOP_SECONDS:
                slow.append(f"{method} {path} {name}: {seconds * 1000:.0f} ms")
    assert not slow
    attacks_tried(count)


@pytest.mark.attack("H1", "bodies of the greatest size without a credential")
async def test_a_body_without_a_credential_takes_no_memory(
    app: FastAPI, http: httpx2.AsyncClient, key: dict[str, str], attacks_tried: Callable[[int], None]
) -> None:
    case = await opened(http, key)
    kind, make = BODIES["proofs without end"]
    body, count = make(), 0
    gc.collect()
    tracemalloc.start()
    try:
        for method, template in routes(app):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            await send(
                app, method, template.replace("{case_id}", case["case_id"]), body, {"content-type": kind}
            )
            assert tracemalloc.get_traced_memory()[1] - before < MEMORY, (method, template)
            count += 1
    finally:
        tracemalloc.stop()
    attacks_tried(count)


@pytest.mark.attack("H1", "bodies of the greatest size without a credential")
async def test_a_callers_own_way_to_say_who_they_are_comes_first_too(tmp_path: Path) -> None:
    async def nobody(request: Any) -> None:
        return None

    app = create_app(f"sqlite:///{tmp_path}/cases.db", base_url=BASE, authenticate=nobody)
    async with running(app):
        for path in ("/v1/reviews", "/v1/reviews/review_1/cancel"):
            answer = await send(app, "POST", path, b"[" * BIGGEST, {"content-type": "application/json"})
            assert (answer[0], answer[2]) == (401, 0)


@pytest.mark.attack("L7", "cases that a stranger asks about")
async def test_a_wrong_token_or_key_reads_nothing_of_the_case(
    app: FastAPI, http: httpx2.AsyncClient, key: dict[str, str]
) -> None:
    case = await opened(http, key, context={"text": "x" * 1_900_000})
    strange = await service_in(app).keys.issue("stranger", by="test")
    sent: list[str] = []
    execute = sqlite_engine._execute

    def noting(connection: Any, statement: Any, params: Any) -> Any:
        rows = execute(connection, statement, params)
        sql = statement.form(sqlite_engine._DIALECT)[0]
        if re.search(r"askfirst_cases\.body", sql):
            sent.extend(
                sql for row in rows if any(isinstance(each, str) and len(each) > 1_000_000 for each in row)
            )
        return rows

    api, page = f"/v1/reviews/{case['case_id']}", f"/review/{case['case_id']}"
    wrong = {"Authorization": f"Bearer {issue_token('submit')}"}
    other = {"Authorization": f"Bearer {strange.text}"}
    with mock.patch.object(sqlite_engine, "_execute", noting):
        answers = [
            await http.get(page, params={"token": issue_token("review")}),
            await http.post(
                f"{page}/respond", params={"token": issue_token("review")}, json={"action": "approve"}
            ),
            await http.post(f"{api}/respond", headers=wrong, json={}),
            *[await http.get(f"{api}/{which}", headers=other) for which in ("status", "events")],
            await http.post(f"{api}/cancel", headers=other),
        ]
    assert {answer.status_code for answer in answers} <= {401, 403, 404}
    assert sent == []
    with mock.patch.object(sqlite_engine, "_execute", noting):
        assert (await http.get(case["review_url"])).status_code == 200
    assert sent, "nothing would have been noted"


OWN, FOREIGN = "http://127.0.0.1:8000", "https://evil.example"
ORIGINS = [
    ({"Origin": "null"}, True),
    ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, True),
    ({"Origin": "null", "Sec-Fetch-Site": "same-site"}, True),
    ({"Origin": "null", "Sec-Fetch-Site": "CROSS-SITE"}, True),
    ({"Origin": "null", "Sec-Fetch-Site": "anything"}, True),
    ({"Origin": "null", "Sec-Fetch-Site": ""}, True),
    ({"Origin": FOREIGN}, True),
    ({"Origin": FOREIGN, "Sec-Fetch-Site": "same-origin"}, True),
    ({"Origin": OWN, "Sec-Fetch-Site": "cross-site"}, True),
    ({"Sec-Fetch-Site": "cross-site"}, True),
    ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, False),
    ({"Origin": "null", "Sec-Fetch-Site": "none"}, False),
    ({"Origin": OWN}, False),
    ({"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, False),
    ({}, False),
]


@pytest.mark.attack("L1", "forms from other sites' pages")
@pytest.mark.parametrize(("headers", "foreign"), ORIGINS)
async def test_only_what_browsers_say_of_our_own_page_is_ours(
    http: httpx2.AsyncClient, key: dict[str, str], headers: dict[str, str], foreign: bool
) -> None:
    case = await opened(http, key)
    link, _, token = case["review_url"].partition("?")
    answer = await http.post(f"{link}/respond?{token}", data={"action": "approve"}, headers=headers)
    assert answer.status_code == (403 if foreign else 303), answer.text


@pytest.mark.attack("L10", "what is open to anybody")
async def test_the_description_of_the_api_needs_a_key(http: httpx2.AsyncClient, key: dict[str, str]) -> None:
    assert (await http.get("/openapi.json")).status_code == 401
    described = (await http.get("/openapi.json", headers=key)).json()
    assert "/v1/reviews" in described["paths"]


@pytest.mark.attack("L10", "answers that are taken for something else")
async def test_every_answer_says_that_it_is_what_it_is(
    app: FastAPI, http: httpx2.AsyncClient, key: dict[str, str]
) -> None:
    case = await opened(http, key)
    await http.post(f"/v1/reviews/{case['case_id']}/cancel", headers=key)  # its stream ends
    for method, template in routes(app):
        answer = await http.request(method, template.replace("{case_id}", case["case_id"]), headers=key)
        assert answer.headers["x-content-type-options"] == "nosniff", (method, template)


@pytest.mark.parametrize(
    ("content", "kind", "status", "said"),
    [
        (
            b'{"type": ',
            "application/json",
            400,
            "The body is not valid JSON: EOF while parsing a value at line 1 column 9.",
        ),
        (b"", "application/json", 400, "The body is empty; send a JSON object."),
        (
            b"{}",
            "application/x-www-form-urlencoded",
            415,
            "Content-Type: application/json; it is application/x-www",
        ),
        (b"{}", "", 415, "Content-Type: application/json; it is not given"),
        (b"[]", "application/json", 422, "body: must be a JSON object"),
    ],
)
async def test_what_cannot_be_read_is_said_in_one_sentence(
    http: httpx2.AsyncClient, key: dict[str, str], content: bytes, kind: str, status: int, said: str
) -> None:
    headers = {**key, **({"Content-Type": kind} if kind else {})}
    case = await opened(http, key)
    submit = {**headers, "Authorization": f"Bearer {case.get('submit_token', '')}"}
    answers = [await http.post("/v1/reviews", content=content, headers=headers)]
    if "submit_token" in case:
        answers.append(await http.post(case["submit_url"], content=content, headers=submit))
    for answer in answers:
        assert answer.status_code == status
        assert said in answer.json()["message"]


async def test_the_page_takes_forms_and_json_and_says_so(
    http: httpx2.AsyncClient, key: dict[str, str]
) -> None:
    link, _, token = (await opened(http, key))["review_url"].partition("?")
    odd = await http.post(f"{link}/respond?{token}", content=b"x", headers={"Content-Type": "text/plain"})
    assert (odd.status_code, odd.json()["error"]) == (415, "unsupported_media_type")
    broken = await http.post(
        f"{link}/respond?{token}", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert (broken.status_code, broken.json()["error"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("given", "meant"), [("aproval", "approval"), ("select", "selection"), ("inputs", "input")]
)
async def test_a_type_that_is_nearly_one_is_suggested(
    http: httpx2.AsyncClient, key: dict[str, str], given: str, meant: str
) -> None:
    answer = await http.post("/v1/reviews", json={"type": given, "prompt": "p"}, headers=key)
    assert answer.status_code == 422
    assert answer.json()["faults"]["type"].endswith(f"did you mean {meant!r}?")


async def test_a_body_that_ends_too_soon_is_no_failure_of_ours(app: FastAPI, key: dict[str, str]) -> None:
    heard: list[int] = []

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def hear(message: dict[str, Any]) -> None:
        heard.append(message.get("status", 0))

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/reviews",
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in key.items()],
    }
    await asyncio.wait_for(app(scope, gone, hear), PATIENCE)
    assert heard[0] == 400
