"""A2A: a task waits for people and goes on, with the SDK's own handler, client and types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.auth.user import UnauthenticatedUser, User
from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import (
    get_data_parts,
    get_message_text,
    new_data_part,
    new_task_from_user_message,
    new_text_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import (
    DefaultServerCallContextBuilder,
    create_agent_card_routes,
    create_jsonrpc_routes,
)
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    CancelTaskRequest,
    Message,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
)
from adapters.frameworks.pages import run_page
from starlette.applications import Starlette

from askfirst import Gate
from askfirst.adapters.a2a import gated
from askfirst.ids import new_id

pytestmark = pytest.mark.anyio
CARD = AgentCard(
    name="shop",
    description="Pays back.",
    version="1",
    supported_interfaces=[
        AgentInterface(url="http://shop/a2a", protocol_binding="JSONRPC", protocol_version="1.0")
    ],
    capabilities=AgentCapabilities(streaming=False),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="refund", name="Refund", description="Pays back.", tags=["money"])],
)


class Named(User):
    """A user that a server has authenticated."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


class Shop(AgentExecutor):
    """An agent with one dangerous call."""

    def __init__(self, gate: Gate, effects: list[int]) -> None:
        self._gate = gate
        self._effects = effects

    def pay(self, cents: int) -> str:
        self._effects.append(cents)
        return f"paid {cents}"

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, str(context.task_id), str(context.context_id))
        await updater.start_work()
        outcome: Any = await self._gate.call(
            self.pay, {"cents": 2**60}, key=f"a2a:{context.task_id}:pay", wait=0
        )
        if hasattr(outcome, "link"):
            raise outcome
        said = getattr(outcome, "result", None) or str(outcome)
        await updater.complete(updater.new_agent_message([new_text_part(said)]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, str(context.task_id), str(context.context_id)).cancel()


class Server:
    """A server of the agent, and a client of it that is `user`."""

    def __init__(self, store: str, user: User, may_answer: Callable[[str, Any], bool] | None) -> None:
        self.effects: list[int] = []
        self.gate = Gate(store, base_url="https://a.example")
        self.user = user
        executor = gated(self.gate, Shop(self.gate, self.effects), may_answer=may_answer)
        self.handler = DefaultRequestHandlerV2(executor, InMemoryTaskStore(), CARD)

    async def send(self, *parts: Any, task: Task | None = None) -> Task:
        message = Message(
            message_id=new_id(), role=Role.ROLE_USER, parts=parts or [new_text_part("Pay back.")]
        )
        if task is not None:
            message.task_id, message.context_id = task.id, task.context_id
        context = ServerCallContext(user=self.user)
        sent = await self.handler.on_message_send(SendMessageRequest(message=message), context)
        assert isinstance(sent, Task)
        return sent

    async def answer(self, task: Task, answers: Any) -> Task:
        return await self.send(new_data_part({"askfirst": {"answers": answers}}), task=task)

    async def settled(self, task: Task) -> Any:
        return await self.gate.checkpointer.request(f"gate:a2a:{task.id}:pay", "call")


def asked(task: Task) -> dict[str, Any]:
    """The request that a task shows."""
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    [data] = get_data_parts(task.status.message.parts)
    [request] = data["askfirst"]["requests"]
    return request


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


async def test_a_task_asks_is_answered_and_goes_on(store_url: str) -> None:
    server = Server(store_url, Named("ada"), lambda by, request: by == "ada")
    async with server.gate:
        task = await server.send()
        request = asked(task)
        said = get_message_text(task.status.message)
        assert said == f"May pay run? (or decide at https://a.example/review/{request['case']})"
        assert (request["tool"], request["args"]) == ("pay", {"cents": str(2**60)})  # no double holds it
        assert "approved" in request["responseSchema"]["properties"]
        assert asked(await server.send(new_text_part("approve"), task=task)) == request
        ended = await server.answer(task, {request["case"]: {"approved": True, "editedArgs": {"cents": 3}}})
        assert ended.status.state == TaskState.TASK_STATE_COMPLETED
        settled = await server.settled(task)
        assert (settled.answered_by, settled.via) == ("ada", "a2a")
    assert server.effects == [3]
    assert all(type(it) is int for it in server.effects)


@pytest.mark.parametrize("who", ["nobody", "not allowed", "no rule"])
async def test_whoever_may_not_answers_nothing(url: str, who: str) -> None:
    user: User = UnauthenticatedUser() if who == "nobody" else Named("eve")
    rule = None if who == "no rule" else lambda by, request: who == "nobody"
    server = Server(url, user, rule)
    async with server.gate:
        task = await server.send()
        claim = {"approved": True, "answered_by": "ada"}
        again = await server.answer(task, {asked(task)["case"]: claim})
        assert "you may not decide this" in get_message_text(again.status.message)
        assert (await server.settled(task)).status == "pending"
    assert server.effects == []


async def test_forged_early_and_unfit_answers_change_nothing(url: str) -> None:
    server = Server(url, Named("ada"), lambda by, request: True)
    async with server.gate:
        task, other = await server.send(), await server.send()
        case = asked(task)["case"]
        await server.answer(other, {case: {"approved": True}})
        await server.answer(task, {"review_0": {"approved": True}})
        unfit = await server.answer(task, {case: {"approved": True, "editedArgs": {"cents": 2**60}}})
        assert "Nothing was answered" in get_message_text(unfit.status.message)
        for odd in ("approve", ["x"], {"answers": "x"}):
            await server.send(new_data_part({"askfirst": odd}), task=task)
        await server.send(new_data_part("askfirst"), task=task)
        assert (await server.settled(task)).status == "pending"
    assert server.effects == []


async def test_an_answer_on_the_page_goes_on_with_the_next_message(url: str) -> None:
    server = Server(url, Named("ada"), None)
    async with server.gate:
        task = await server.send()
        await server.gate.answer(f"a2a:{task.id}:pay", {"decision": "deny", "reason": "too dear"}, by="ben")
        ended = await server.send(new_text_part("And?"), task=task)
        assert ended.status.state == TaskState.TASK_STATE_COMPLETED
        assert "too dear" in get_message_text(ended.status.message)
    assert server.effects == []


async def test_a_cancelled_task_withdraws_its_request(url: str) -> None:
    server = Server(url, Named("ada"), None)
    async with server.gate:
        task = await server.send()
        await server.handler.on_cancel_task(
            CancelTaskRequest(id=task.id), ServerCallContext(user=server.user)
        )
        assert (await server.settled(task)).status == "cancelled"
    assert server.effects == []


async def test_over_http_with_the_sdks_client(url: str) -> None:
    server = Server(url, Named("ada"), lambda by, request: True)

    class Login(DefaultServerCallContextBuilder):
        def build_user(self, request: Any) -> User:
            known = request.headers.get("authorization") == "Bearer ada"
            return Named("ada") if known else UnauthenticatedUser()

    routes = create_jsonrpc_routes(server.handler, "/a2a", Login()) + create_agent_card_routes(CARD)
    transport = httpx.ASGITransport(Starlette(routes=routes))
    async with (
        server.gate,
        httpx.AsyncClient(transport=transport, headers={"authorization": "Bearer ada"}) as http,
        await create_client(CARD, ClientConfig(streaming=False, httpx_client=http)) as client,
    ):

        async def send(part: Any, task: Task | None = None) -> Task:
            message = Message(message_id=new_id(), role=Role.ROLE_USER, parts=[part])
            if task is not None:
                message.task_id, message.context_id = task.id, task.context_id
            [said] = [it async for it in client.send_message(SendMessageRequest(message=message))]
            return said.task

        task = await send(new_text_part("Pay back."))
        answers = {asked(task)["case"]: {"approved": True}}
        ended = await send(new_data_part({"askfirst": {"answers": answers}}), task)
        assert ended.status.state == TaskState.TASK_STATE_COMPLETED
    assert server.effects == [2**60]


async def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = await run_page("a2a", card=CARD)
    context = ServerCallContext(user=Named("ada"))
    message = Message(message_id="m", role=Role.ROLE_USER, parts=[new_text_part("Pay back.")])
    task = await page["handler"].on_message_send(SendMessageRequest(message=message), context)
    answers = {"askfirst": {"answers": {asked(task)["case"]: {"approved": True}}}}
    reply = Message(message_id="n", role=Role.ROLE_USER, parts=[new_data_part(answers)])
    reply.task_id, reply.context_id = task.id, task.context_id
    ended = await page["handler"].on_message_send(SendMessageRequest(message=reply), context)
    assert get_message_text(ended.status.message) == "paid back 4900"
    await page["gate"].aclose()
