"""Logs: one line of JSON for each request, with nothing secret in it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from askfirst.protocol import issue_token
from askfirst.service.observability import RequestLog, configure_logging, safe_path

pytestmark = pytest.mark.anyio

KEY = "askfirst_" + "K" * 43


async def hello(request: Request) -> PlainTextResponse:
    request.state.key_id = "key_1"
    return PlainTextResponse("hello", 202)


async def fails(request: Request) -> PlainTextResponse:
    raise RuntimeError("broken")


async def streams(request: Request) -> StreamingResponse:
    async def parts() -> Any:
        yield b"one"
        yield b"two"

    return StreamingResponse(parts())


ROUTES = [Route(path, endpoint) for path, endpoint in (("/fails", fails), ("/streams", streams))]
APP = Starlette(routes=[*ROUTES, Route("/{rest:path}", hello, methods=["GET", "POST"])])


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("httpx2", "httpcore2", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.NOTSET)


async def call(method: str, url: str, **options: Any) -> httpx2.Response:
    ticks = iter([1.0, 1.25])
    transport = httpx2.ASGITransport(RequestLog(APP, timer=lambda: next(ticks)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
        return await client.request(method, url, **options)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_a_request_is_one_line(stream: io.StringIO) -> None:
    await call("POST", "/v1/reviews/review_1/respond?token=secret", content=b"answer-in-the-body")
    (line,) = lines(stream)
    assert set(line) == {
        "time",
        "level",
        "logger",
        "message",
        "method",
        "path",
        "status",
        "duration_ms",
        "key_id",
    }
    assert (line["method"], line["path"], line["status"]) == ("POST", "/v1/reviews/review_1/respond", 202)
    assert (line["duration_ms"], line["key_id"]) == (250.0, "key_1")
    assert line["message"] == "POST /v1/reviews/review_1/respond 202"


async def test_tokens_keys_and_answers_are_in_no_line(stream: io.StringIO) -> None:
    review, submit = issue_token("review"), issue_token("submit")
    headers = {"authorization": f"Bearer {KEY}", "cookie": f"token={review}"}
    for url in (
        f"/review/case_1?token={review}",
        f"/review/case_1%3Ftoken={review}",  # a messenger that escapes too much
        f"/review/case_1&token={submit}",
        f"/review/{review}",
        f"/v1/{KEY}/status",
        f"/v1/x{submit}y",
    ):
        await call("GET", url, headers=headers, params=None)
    written = stream.getvalue()
    for secret in (review, submit, submit.removeprefix("agt_"), KEY):
        assert secret not in written
    assert [line["path"] for line in lines(stream)] == [
        *["/review/case_1"] * 3,
        "/review/***",
        "/v1/***/status",
        "/v1/***",
    ]


async def test_a_failing_request_is_a_line_with_500(stream: io.StringIO) -> None:
    with pytest.raises(RuntimeError, match="broken"):
        await call("GET", "/fails")
    assert (lines(stream)[-1]["path"], lines(stream)[-1]["status"]) == ("/fails", 500)


async def test_a_stream_is_a_line_when_it_is_over(stream: io.StringIO) -> None:
    assert (await call("GET", "/streams")).text == "onetwo"
    (line,) = lines(stream)
    assert (line["path"], line["status"], line["key_id"]) == ("/streams", 200, None)


async def test_who_leaves_before_the_answer_has_no_status(stream: io.StringIO) -> None:
    class Left(BaseException):
        pass

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise Left

    with pytest.raises(Left):
        await RequestLog(app)({"type": "http", "method": "GET", "path": "/x"}, None, None)  # type: ignore[arg-type]
    assert lines(stream)[0]["status"] is None


async def test_other_scopes_pass_by(stream: io.StringIO) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    await RequestLog(app)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert (seen, lines(stream)) == (["lifespan"], [])


def test_a_path_forges_no_line() -> None:
    assert safe_path('/a\n{"level": "info"}\u2028\x1b[31m') == '/a?{"level": "info"}??[31m'
    assert len(safe_path("/a." * 1000)) == 300


def test_errors_are_on_the_line_and_clients_stay_quiet(stream: io.StringIO) -> None:
    try:
        raise ValueError("told")
    except ValueError:
        logging.getLogger("askfirst.service").exception("callback %s", "c1")
    logging.getLogger("httpx2").info("HTTP Request: POST https://x/?token=1")
    logging.getLogger("uvicorn.access").info("GET /?token=1")
    (line,) = lines(stream)
    assert (line["level"], line["message"]) == ("error", "callback c1")
    assert line["error"].endswith("ValueError: told")
