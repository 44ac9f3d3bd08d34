"""APIs as tools: what is sent, what the model is told, and threads that wait for a person without being held."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from kit.patience import PATIENCE
from kit.running_service import HandClock, Served, listening, serving, until
from pydantic import BaseModel, Field
from sqlalchemy import func, select
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from askfirst import Agent, AgentResult, AgentSpec
from askfirst.agent.subagents import subagent_tool
from askfirst.agent.tools import Tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.client import http_tool as tools
from askfirst.client.client import HitlClient
from askfirst.client.http_tool import MOST_CHARACTERS, http_tool, resume_when_decided
from askfirst.delivery.base import Notice
from askfirst.errors import InvalidTool
from askfirst.messages import AssistantMessage, ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel
from askfirst.store.case_tables import cases
from askfirst.store.statement import Statement

pytestmark = pytest.mark.anyio


class Review(BaseModel):
    type: str = "approval"
    prompt: str
    default_action: str | None = None
    timeout: str | None = None
    context: dict[str, Any] | None = None


@dataclass
class Rig:
    """A service, a client with a store, and the person who gets the links."""

    served: Served
    store: SqlCheckpointer
    client: HitlClient
    notices: list[Notice] = field(default_factory=list)

    @property
    def links(self) -> list[str]:
        return [each.review_url for each in self.notices if each.kind == "review" and each.review_url]

    def tool(self, **options: Any) -> Tool:
        given: dict[str, Any] = {"name": "ask", "parameters": Review, **options}
        return http_tool(self.client, "POST", f"{self.served.url}/v1/reviews", **given)

    def agent(
        self, *calls: ToolCall, thread_id: str = "thread-1", store: bool = True, **options: Any
    ) -> Agent:
        """An agent whose model makes these calls, and then says what came of them."""
        return Agent(
            model=ScriptedModel([lambda messages: _turn(messages, calls)] * 10),
            tools=options.pop("tools", [self.tool()]),
            checkpointer=self.store if store else None,
            thread_id=thread_id,
            **options,
        )

    def link_to(self, prompt: str) -> str:
        """The link to what asks this: of calls that run together, whichever is first is told of first."""
        told = (
            each.review_url for each in self.notices if each.facts.get("prompt") == prompt and each.review_url
        )
        return next(told)

    async def say(self, link: str, action: str, data: Any = None) -> None:
        """Be the person."""
        page, _, query = link.partition("?")
        body = {"action": action} if data is None else {"action": action, "data": data}
        answer = await self.served.http.post(f"{page}/respond?{query}", json=body)
        assert answer.is_success, answer.text

    async def opened(self) -> int:
        """How many cases there are."""

        def count() -> Any:
            return (yield Statement(select(func.count()).select_from(cases)), {})

        return (await self.served.service.cases.engine.read(count))[0][0]


def _turn(messages: list[Any], calls: tuple[ToolCall, ...]) -> Any:
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    said = any(isinstance(message, AssistantMessage) for message in messages)
    return "; ".join(result.text for result in results) if said else list(calls)


def call(number: int = 1, **args: Any) -> ToolCall:
    return ToolCall(f"call-{number}", "ask", {"prompt": f"Question {number}?", **args})


def results(result: AgentResult) -> list[ToolResultMessage]:
    return [message for message in result.messages if isinstance(message, ToolResultMessage)]


@asynccontextmanager
async def rig(**service: Any) -> AsyncGenerator[Rig]:
    async with (
        MemoryCheckpointer() as store,
        serving("sqlite://", **service) as served,
        httpx2.AsyncClient(headers=(await served.agent()).headers) as http,
    ):
        notices: list[Notice] = []

        async def deliver(notice: Notice) -> None:
            notices.append(notice)

        async with HitlClient(
            http, deliver=deliver, store=store, poll_interval=0.05, min_poll_interval=0.05
        ) as client:
            yield Rig(served, store, client, notices)


# What is sent, and what the model is told.


class Job(BaseModel):
    job_id: str
    note: str | None = None
    from_city: str = Field(default="Berlin", alias="fromCity")


async def _echo(request: Request) -> Response:
    body = await request.body()
    return JSONResponse(
        {
            "method": request.method,
            "path": request.scope["raw_path"].decode(),
            "query": dict(request.query_params),
            "body": json.loads(body) if body else None,
            "key": request.headers.get("idempotency-key"),
        }
    )


async def _say(request: Request) -> Response:
    status = int(request.path_params["status"])
    return PlainTextResponse("x" * int(request.query_params.get("length", 4)), status)


@asynccontextmanager
async def api() -> AsyncGenerator[tuple[str, HitlClient]]:
    methods = ["GET", "POST", "PUT", "DELETE"]
    app = Starlette(
        routes=[Route("/say/{status}", _say, methods=methods), Route("/{rest:path}", _echo, methods=methods)]
    )

    async def deliver(notice: Notice) -> None:
        raise AssertionError("nobody is to be asked")

    async with listening(lambda _: app) as (url, _), HitlClient(deliver=deliver) as client:
        yield url, client


async def run(tool: Tool, **args: Any) -> ToolResultMessage:
    agent = Agent(model=ScriptedModel([ToolCall("call-1", tool.name, args), "done"]), tools=[tool])
    (result,) = results(await agent.prompt("Go"))
    return result


@pytest.mark.parametrize("method", ["GET", "POST", "put", "DELETE"])
async def test_where_the_arguments_go(method: str) -> None:
    async with api() as (url, client):
        tool = http_tool(client, method, f"{url}/jobs/{{job_id}}", name="apply", parameters=Job)
        result = await run(tool, job_id="a/../b?c=d", note=None, fromCity="Rome")
    said = json.loads(result.text)
    assert said["path"] == "/jobs/a%2F..%2Fb%3Fc%3Dd"
    in_query = method in ("GET", "DELETE")
    assert said["query" if in_query else "body"] == {"fromCity": "Rome"}
    assert (said["body"] or {}, said["query"]) == (
        ({}, {"fromCity": "Rome"}) if in_query else ({"fromCity": "Rome"}, {})
    )
    assert said["key"]
    assert not result.is_error
    assert result.details == {"http_status": 200}


async def test_a_tool_without_parameters() -> None:
    async with api() as (url, client):
        result = await run(http_tool(client, "POST", f"{url}/ping", name="ping", description="Pings."))
    assert json.loads(result.text)["body"] == {}


@pytest.mark.parametrize("job_id", ["", ".", ".."])
async def test_no_other_path_by_the_back_door(job_id: str) -> None:
    async with api() as (url, client):
        tool = http_tool(client, "GET", f"{url}/jobs/{{job_id}}", name="look", parameters=Job)
        result = await run(tool, job_id=job_id)
    assert result.is_error
    assert "cannot be empty, . or .." in result.text


@pytest.mark.parametrize(
    "url",
    [
        "https://{job_id}.example/",
        "https://a.example/x?y={job_id}",
        "https://a.example/{other}",
        "https://a.example/{note}",
        "https://a.example/{job_id}/{job_id}",
    ],
)
async def test_urls_that_make_no_tool(url: str) -> None:
    async with api() as (_, client):
        with pytest.raises(InvalidTool):
            http_tool(client, "GET", url, name="look", parameters=Job)


async def test_errors_and_long_answers() -> None:
    async with api() as (url, client):
        missing = await run(http_tool(client, "GET", f"{url}/say/404", name="look"))
        long = await run(http_tool(client, "GET", f"{url}/say/200?length={MOST_CHARACTERS + 7}", name="look"))
        gone = await run(http_tool(client, "POST", "http://127.0.0.1:1/", name="look"))
    assert (missing.is_error, missing.text) == (True, "The service answered with HTTP 404: xxxx")
    assert missing.details == {"http_status": 404}
    assert long.text.endswith("[7 more characters were cut off]")
    assert (gone.is_error, gone.text) == (True, "The service could not be reached (ConnectError).")


async def test_what_running_a_tool_twice_does() -> None:
    async with api() as (url, client), MemoryCheckpointer() as store:
        durable = HitlClient(deliver=print, store=store)
        for method, effect in (("GET", "none"), ("DELETE", "idempotent"), ("POST", "once")):
            assert http_tool(client, method, url, name="x").effect == effect
        assert http_tool(client, "POST", url, name="x", effect="idempotent").effect == "idempotent"
        assert http_tool(durable, "POST", url, name="x").effect == "idempotent"


async def test_a_connection_that_breaks_leaves_a_doubt() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, HitlClient(deliver=print) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        once = await run(http_tool(client, "POST", url, name="pay"))
        looked = await run(http_tool(client, "GET", url, name="look"))
    assert "took effect is unknown" in once.text
    assert "unknown" not in looked.text


# People.


async def test_without_a_store_the_tool_waits() -> None:
    async with rig() as it:
        agent = it.agent(call(), store=False)
        running = asyncio.create_task(agent.prompt("Go"))
        await until(_links(it))
        await it.say(it.links[0], "approve", {"feedback": "fine"})
        result = await running
    (told,) = results(result)
    assert result.status == "completed"
    assert json.loads(told.text) == {
        "outcome": "A person decided: approve.",
        "action": "approve",
        "data": {"feedback": "fine"},
    }
    assert told.details is not None
    assert told.details["hitl"]["status"] == "completed"


def _links(it: Rig, number: int = 1) -> Any:
    async def check() -> bool:
        return len(it.links) >= number

    return check


async def test_a_wait_is_a_suspended_thread() -> None:
    async with rig() as it:
        result = await it.agent(call()).prompt("Go")
        assert (result.status, result.reason) == ("suspended", "it waits for a person")
        stored = await it.store.load("thread-1")
        assert stored is not None
        assert not stored.is_leased
        assert len(it.links) == 1
        # Whoever resumes it before the person has decided changes nothing, here or elsewhere.
        for _ in range(2):
            assert (await it.agent(call()).resume()).status == "suspended"
        assert (len(it.links), await it.opened()) == (1, 1)
        await it.say(it.links[0], "approve")
        result = await it.agent(call()).resume()
        assert result.status == "completed"
        assert "A person decided: approve." in result.text
        assert (len(it.links), await it.opened()) == (1, 1)


@pytest.mark.parametrize(
    ("args", "action", "is_error", "said"),
    [
        ({}, "reject", True, "A person refused (reject)"),
        ({}, "edit", False, "A person decided: edit"),
        ({"type": "confirmation"}, "cancel", True, "A person refused (cancel)"),
        ({"type": "escalation"}, "skip", False, "A person decided: skip"),
    ],
)
async def test_how_a_decision_is_told(args: dict[str, Any], action: str, is_error: bool, said: str) -> None:
    async with rig() as it:
        await it.agent(call(**args)).prompt("Go")
        await it.say(it.links[0], action, {"feedback": "no"} if action == "edit" else None)
        (told,) = results(await it.agent(call(**args)).resume())
    assert told.is_error is is_error
    assert said in told.text


@pytest.mark.parametrize(("default", "is_error"), [("skip", True), ("abort", True), ("approve", False)])
async def test_nobody_decides(default: str, is_error: bool) -> None:
    clock = HandClock()
    asked = call(default_action=default, timeout="1h")
    async with rig(clock=clock, allow_default_approve=True) as it:
        await it.agent(asked).prompt("Go")
        clock.turn(3601)

        async def resumed() -> AgentResult | None:  # the service needs a moment to see what time it is
            result = await it.agent(asked).resume()
            return result if result.status == "completed" else None

        (told,) = results(await until(resumed))
        await until(lambda: _kinds(it, "expired"))
    assert told.is_error is is_error
    assert f"The service's default holds: {default}" in told.text
    assert "data" not in json.loads(told.text)


async def _kinds(it: Rig, kind: str) -> bool:
    return any(notice.kind == kind for notice in it.notices)


async def test_the_service_takes_it_back() -> None:
    async with rig() as it:
        await it.agent(call()).prompt("Go")
        case_id = it.notices[0].case_id
        url = f"{it.served.url}/v1/reviews/{case_id}/cancel"
        tool = http_tool(it.client, "POST", url, name="withdraw", parameters=_Reason)
        assert not (await run(tool, reason="no longer needed")).is_error
        (told,) = results(await it.agent(call()).resume())
    assert told.is_error
    assert "took its question back: no longer needed" in told.text


class _Reason(BaseModel):
    reason: str


async def test_sensitive_values_are_not_for_the_model() -> None:
    fields = [
        {"key": "city", "label": "City", "type": "text", "required": True},
        {"key": "iban", "label": "IBAN", "type": "text", "sensitive": True},
    ]
    asked = call(type="input", context={"form": {"fields": fields}})
    async with rig() as it:
        await it.agent(asked).prompt("Go")
        await it.say(it.links[0], "submit", {"city": "Rome", "iban": "DE-secret-account"})
        result = await it.agent(asked).resume()
    assert json.loads(results(result)[0].text)["data"] == {"city": "Rome", "iban": "[redacted]"}
    assert "DE-secret-account" not in repr(result)


# Threads that are resumed when their people have decided.


@pytest.fixture
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "LOOK_SECONDS", 0.02)


async def first_results(it: Rig, make_agent: Any, number: int) -> list[AgentResult]:
    found: list[AgentResult] = []
    resumed = resume_when_decided(it.client, make_agent)
    async with asyncio.timeout(PATIENCE):
        async for result in resumed:
            found.append(result)
            if len(found) == number:
                break
    await resumed.aclose()
    return found


@pytest.mark.usefixtures("_quick_looks")
async def test_threads_go_on_when_their_people_have_decided() -> None:
    async with rig() as it:
        names = [f"thread-{number}" for number in range(5)]
        for name in names:
            assert (await it.agent(call(), thread_id=name).prompt("Go")).status == "suspended"
        going_on = asyncio.create_task(first_results(it, lambda name: it.agent(call(), thread_id=name), 5))
        for link in it.links:
            await it.say(link, "approve")
        done = await going_on
        assert sorted(result.thread_id for result in done) == names
        assert {result.status for result in done} == {"completed"}
        assert (len(it.links), await it.opened()) == (5, 5)
        await until(lambda: _nothing_kept(it))


async def _nothing_kept(it: Rig) -> bool:
    return [each async for each in it.client.keyed.waits.kept()] == []


@pytest.mark.usefixtures("_quick_looks")
async def test_two_calls_of_one_message() -> None:
    async with rig() as it:
        agent = it.agent(call(1), call(2))
        assert (await agent.prompt("Go")).status == "suspended"
        assert len(it.links) == 2
        resumed = resume_when_decided(it.client, lambda _: it.agent(call(1), call(2)))
        async with asyncio.timeout(PATIENCE):
            await it.say(it.link_to("Question 2?"), "reject")
            first = await anext(resumed)
            await it.say(it.link_to("Question 1?"), "approve")
            second = await anext(resumed)
        await resumed.aclose()
        assert await it.opened() == 2
    assert (first.status, second.status) == ("suspended", "completed")
    assert {each.tool_call_id: each.is_error for each in results(second)} == {"call-1": False, "call-2": True}


@pytest.mark.usefixtures("_quick_looks")
async def test_a_subagents_tool_resumes_the_agent() -> None:
    async with rig() as it:

        def make(_: str = "") -> Agent:
            helper = AgentSpec(
                "helper", ScriptedModel([lambda messages: _turn(messages, (call(),))] * 10), [it.tool()]
            )
            task = ToolCall("call-helper", "helper", {"prompt": "Ask them."})
            return it.agent(task, tools=[subagent_tool(helper)])

        assert (await make().prompt("Go")).status == "suspended"
        going_on = asyncio.create_task(first_results(it, make, 1))
        await it.say(it.links[0], "approve")
        (result,) = await going_on
        assert result.thread_id == "thread-1"
        assert result.status == "completed"
        assert "A person decided: approve." in result.text
        assert (len(it.links), await it.opened()) == (1, 1)


@pytest.mark.usefixtures("_quick_looks")
async def test_a_thread_that_went_on_without_it_is_left_alone() -> None:
    async with rig() as it:
        await it.agent(call()).prompt("Go")
        await it.agent(call()).prompt("Never mind")
        before = await it.store.load("thread-1")
        going_on = asyncio.create_task(first_results(it, lambda _: it.agent(call()), 1))
        await it.say(it.links[0], "approve")
        await until(lambda: _nothing_kept(it))
        going_on.cancel()
        await asyncio.wait({going_on})
        after = await it.store.load("thread-1")
    assert before is not None
    assert after is not None
    assert after.messages == before.messages


@pytest.mark.usefixtures("_quick_looks")
async def test_an_agent_that_cannot_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_SOON", 0.01)
    async with rig() as it:
        await it.agent(call()).prompt("Go")
        tries: list[str] = []

        async def make(thread_id: str) -> Agent:
            tries.append(thread_id)
            if len(tries) < 3:
                raise OSError("no model just now")
            return it.agent(call())

        await it.say(it.links[0], "approve")
        (result,) = await first_results(it, make, 1)
    assert result.status == "completed"
    assert tries == ["thread-1"] * 3


async def test_a_client_without_a_store_resumes_nothing() -> None:
    async with HitlClient(deliver=print) as client:
        with pytest.raises(ValueError, match="needs a store"):
            await anext(resume_when_decided(client, lambda _: pytest.fail("no")))
