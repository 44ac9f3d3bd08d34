"""Tokens: each opens one case in one way, none can be guessed at, and none is written down anywhere."""

from __future__ import annotations

import io
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.callback_receivers import receiving
from kit.running_service import BROWSER, BUTTON, SECRET, Served, events, serving, until
from kit.smtp_mailbox import Mailbox, mailbox
from kit.stores import approval, asked
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

from askfirst import Agent, tool
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.protocol import issue_token, token_matches
from askfirst.service.adoption import case_id_of
from askfirst.service.callbacks import callback_secret
from askfirst.service.embedding import review_link
from askfirst.service.observability import configure_logging
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("tokens")
    async with serving(f"sqlite:///{folder}/cases.db", quick=False, inline=True) as service:
        yield service


async def test_review_and_submit_token_are_never_interchangeable(served: Served) -> None:
    case = await (await served.agent()).open("confirmation")
    review, submit = case.token, case.hitl["submit_token"]
    base = f"/review/{case.case_id}"
    for swapped in (
        await served.http.get(f"{base}?token={submit}", headers=BROWSER),
        await served.http.get(f"{base}?token={submit.removeprefix('agt_')}", headers=BROWSER),
        await served.http.post(f"{base}/respond?token={submit}", json={"action": "confirm"}),
        await served.http.post(f"{base}/respond?token={submit}", data={"action": "confirm"}),
    ):
        assert swapped.status_code == 404
    for token in (review, f"agt_{review}", submit[:-1], f"{submit}a"):
        headers = {"Authorization": f"Bearer {token}"}
        answer = await served.http.post(
            case.hitl["submit_url"], json={"action": "confirm", **BUTTON}, headers=headers
        )
        assert answer.status_code == 401
        assert answer.json()["error"] == "invalid_token"
    assert (await case.poll())["status"] == "pending"


async def test_a_token_opens_its_own_case_only(served: Served) -> None:
    agent = await served.agent()
    one, other = await agent.open(), await agent.open()
    assert (await served.http.get(f"/review/{one.case_id}?token={other.token}")).status_code == 404
    headers = {"Authorization": f"Bearer {other.hitl['submit_token']}"}
    body = {"action": "approve", **BUTTON}
    assert (await served.http.post(one.hitl["submit_url"], json=body, headers=headers)).status_code == 401
    for case in (one, other):
        assert (await case.poll())["status"] == "pending"


@pytest.mark.parametrize("way", ["page", "head", "form", "json", "button"])
@pytest.mark.parametrize("wrong", ["another", "none", "short", "long", "odd"])
async def test_a_wrong_token_looks_like_an_unknown_case(served: Served, way: str, wrong: str) -> None:
    case = await (await served.agent()).open()
    token = {
        "another": issue_token("review"),
        "none": "",
        "short": "a",
        "long": "a" * 5000,
        "odd": "%00%ff%F0%9F%98%80",
    }[wrong]
    known = await _try(served, way, case.case_id, token)
    unknown = await _try(served, way, "review_" + "0" * 32, token)
    assert known.status_code == unknown.status_code == (401 if way == "button" else 404)
    assert known.content == unknown.content
    assert _headers(known) == _headers(unknown)
    assert case.case_id not in known.text


async def _try(served: Served, way: str, case_id: str, token: str) -> httpx2.Response:
    page = f"/review/{case_id}?token={token}"
    respond = f"/review/{case_id}/respond?token={token}"
    match way:
        case "page":
            return await served.http.get(page, headers=BROWSER)
        case "head":
            return await served.http.head(page)
        case "form":
            return await served.http.post(respond, data={"action": "approve"})
        case "json":
            return await served.http.post(respond, json={"action": "approve"})
        case _:
            headers = {"Authorization": f"Bearer {token}".strip()}
            url, body = f"/v1/reviews/{case_id}/respond", {"action": "approve", **BUTTON}
            return await served.http.post(url, json=body, headers=headers)


def _headers(answer: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


@pytest.mark.parametrize("case_id", ["a b", "..", "%00", "x" * 200, "é", "a;b", "%F0%9F%98%80"])
async def test_a_link_that_cannot_be_is_as_unknown_as_any(served: Served, case_id: str) -> None:
    page = await served.http.get(f"/review/{case_id}?token=a")
    unknown = await served.http.get(f"/review/review_1?token={issue_token('review')}")
    assert page.status_code == 404
    assert case_id == ".." or page.content == unknown.content


async def test_tokens_are_compared_in_constant_time_even_where_there_is_none(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str | None] = []

    def noting(token: str, scope: Any, stored: str | None) -> bool:
        compared.append(stored)
        return token_matches(token, scope, stored)

    monkeypatch.setattr("askfirst.service.links.token_matches", noting)
    case = await (await served.agent()).open()
    await _try(served, "page", case.case_id, issue_token("review"))
    await _try(served, "page", "review_unknown", issue_token("review"))
    assert len(compared) == 2
    assert compared[1] is None


# Nothing secret is written down.


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    """All that a server logs, as `askfirst serve` sets it up, and more: down to the last detail of our own."""
    root, ours = logging.getLogger(), logging.getLogger("askfirst")
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(stream)
    ours.setLevel(logging.DEBUG)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(logging.NOTSET)
    for name in ("httpx2", "httpcore2", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[InMemorySpanExporter, InMemoryMetricReader]]:
    """Everything that is traced and measured."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    tracing, metering = TracerProvider(), MeterProvider([reader])
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(tracing)
    monkeypatch.setattr(metrics, "get_meter", metering.get_meter)
    yield spans, reader
    tracing.shutdown()
    metering.shutdown()


SENSITIVE = "IBAN-DE-4711-0815"


async def test_nothing_secret_is_in_the_database_the_logs_or_the_traces(
    tmp_path: Path,
    logs: io.StringIO,
    telemetry: tuple[InMemorySpanExporter, InMemoryMetricReader],
    capfd: pytest.CaptureFixture[str],
) -> None:
    spans, reader = telemetry
    async with (
        checkpointer_from_url(f"sqlite:///{tmp_path}/cases.db") as store,
        mailbox() as box,
        serving(store, smtp_url=box.url, inline=True) as served,
        receiving() as receiver,
    ):
        await _a_full_run(served, store, receiver)
        await _codes_by_mail(served, box)
        await _a_traced_agent(served, store)
        agent = await served.agent("last")
        secrets = [*served.tokens, callback_secret(SECRET, agent.key_id), SECRET]
        told = reader.get_metrics_data().to_json()
    assert len(secrets) >= 15
    assert len(box.codes) == 3
    kept = _bytes_in(tmp_path)
    printed = capfd.readouterr()
    written = {
        "database": kept.decode("latin-1"),
        "rows": _rows_in(tmp_path / "cases.db"),
        "logs": logs.getvalue(),
        "output": printed.out + printed.err,
        "spans": "".join(span.to_json() for span in spans.get_finished_spans()),
        "metrics": told,
    }
    assert "/v1/reviews" in written["logs"]
    assert "case.code_sent" in written["rows"]
    assert "traced" in written["spans"]
    for where, text in written.items():
        for secret in secrets:
            assert secret not in text, where
            assert secret.removeprefix("agt_") not in text, where
        for code in box.codes:
            assert not _has_code(text, code), where
    for where in ("logs", "output", "spans", "metrics"):
        assert SENSITIVE not in written[where]
        assert "review_" not in written["metrics"]
    for name in (
        "askfirst.service.requests",
        "askfirst.service.open_cases",
        "askfirst.service.time_to_answer",
    ):
        assert f'"{name}"' in told


def test_a_code_is_found_where_it_stands_alone() -> None:
    for text in ("123456", '{"code": "123456"}', "email_code=123456&x", "('123456',)"):
        assert _has_code(text, "123456")
    for text in ("0.123456", "1234567", "a123456b"):  # times and hashes, by chance
        assert not _has_code(text, "123456")


def _has_code(text: str, code: str) -> bool:
    """Whether a code stands in a text by itself: as part of a number or a hash it would by chance."""
    return re.search(rf"(?<![0-9A-Za-z.]){code}(?![0-9A-Za-z])", text) is not None


def _rows_in(database: Path) -> str:
    """All that is stored, each value apart from the others."""
    with closing(sqlite3.connect(database)) as connection:
        return "\n".join(connection.iterdump())


def _bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def _a_full_run(served: Served, store: Any, receiver: Any) -> None:
    """Every way in which a token is issued, shown, used rightly and used wrongly."""
    agent = await served.agent()
    hook = f"http://127.0.0.1:{receiver.port}/hook"
    fields = [{"key": "iban", "label": "IBAN", "type": "text", "sensitive": True, "required": True}]
    form = await agent.open("input", context={"form": {"fields": fields}}, hitl_callback_url=hook)
    await form.visit()
    await form.form(step="1", intent="draft", shown=["iban"], **{"f.iban": SENSITIVE})
    assert (await form.form(step="1", shown=["iban"])).status_code == 303  # as it was filled in before
    assert (await form.say("submit", {"iban": SENSITIVE})).status_code == 409
    button = await agent.open("confirmation")
    await button.press("fly")
    assert (await button.press("confirm")).status_code == 200
    await button.press("confirm")
    cancelled = await agent.open()
    await cancelled.cancel()
    body = {"type": "approval", "prompt": "p"}
    for _ in range(2):
        again = (await agent.post("/v1/reviews", body, **{"Idempotency-Key": "k"})).json()["hitl"]
        served.tokens += [again["submit_token"], again["review_url"].partition("token=")[2]]
    await served.http.get(f"/review/{button.case_id}?token={issue_token('review')}")
    await served.http.get(f"/nowhere/{form.token}?token={form.token}")
    await served.http.get(f"/v1/reviews/{form.token}/status", headers=agent.headers)
    [_ async for _ in events(served.http, form.hitl["events_url"], agent.headers)]
    await asked(store, "t", approval())
    case_id = case_id_of("t", "call-1", 1)

    async def adopted() -> bool:
        return await served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

    await until(adopted)
    link = await review_link(served.app, case_id)
    served.tokens.append(link.partition("token=")[2])
    assert (await served.http.get(link, headers=BROWSER)).status_code == 200

    async def called() -> bool:
        return bool(receiver.requests)

    await until(called)


async def _codes_by_mail(served: Served, box: Mailbox) -> None:
    """Codes that are sent, used rightly, used wrongly, and never used."""
    agent = await served.agent()
    first, second = [await agent.open(verify_email="ann@example.com") for _ in range(2)]
    for case in (first, second, second):
        assert (await case.form(send_code="0")).status_code == 200
    assert (await second.form(action="approve", email_code=box.codes[0])).status_code == 403
    assert (await second.say("approve")).status_code == 403
    assert (await first.form(action="approve", email_code=box.codes[0])).status_code == 303
    assert (await first.form(action="approve", email_code=box.codes[0])).status_code == 409
    answer = {"action": "approve", "email_code": box.codes[2]}
    path = f"/review/{second.case_id}/respond?token={second.token}"
    assert (await served.http.post(path, json=answer)).status_code == 200


async def _a_traced_agent(served: Served, store: SqlCheckpointer) -> None:
    """An agent that asks, is answered on the page, and goes on: all of it in spans."""

    @tool(requires_approval=True)
    def pay(iban: str) -> str:
        """Pay."""
        return "Paid."

    model = ScriptedModel([ToolCall("c", "pay", {"iban": SENSITIVE}), "Done."])
    agent = Agent(model=model, tools=[pay], checkpointer=store, thread_id="traced")
    assert (await agent.prompt("Go.")).status == "paused"
    case_id = case_id_of("traced", "c", 1)

    async def adopted() -> bool:
        return await served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

    await until(adopted)
    link = await review_link(served.app, case_id)
    served.tokens.append(link.partition("token=")[2])
    answer = await served.http.post(link.replace("?", "/respond?"), json={"action": "approve", "data": {}})
    assert answer.status_code == 200
    assert (await agent.resume()).text == "Done."
