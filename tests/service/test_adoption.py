"""Agents' requests as cases: every kind, there and back, by whomever it is settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.running_service import BROWSER, HandClock, Served, serving, until
from kit.stores import CALL, asked, prompt, said

from askfirst import Agent, Gate, tool
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.gate.action import Action
from askfirst.hitl import CheckpointedChannel, ask_user_tool
from askfirst.ids import new_id
from askfirst.messages import AssistantMessage, ToolCall, call_digest
from askfirst.models import ScriptedModel
from askfirst.requests import (
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
    fit_answer,
    plain_answer,
)
from askfirst.service.adoption import adopted_case, answer_of, case_id_of, result_of
from askfirst.service.answers import clean_answer
from askfirst.service.case import Case, case_of, row_of
from askfirst.service.embedding import review_link
from askfirst.store import cases as case_store
from askfirst.store.rows import RequestRow

pytestmark = pytest.mark.anyio

ARGS = {"to": "a@example.org", "amount": 3}
APPROVE = ApproveRequest(tool_name="send", tool_call_id="q", args=ARGS, digest=call_digest("send", ARGS))
COLOURS = [Option(label="Red", value="red"), Option(label="Blue", value="blue")]
OWN = [*COLOURS, Option(label="Another", value="other", allow_input=True)]
ONE = AskRequest(questions=[Question(key="colour", prompt="Which?", options=COLOURS)])
SOME = AskRequest(questions=[Question(key="colours", prompt="Which?", options=COLOURS, multi_select=True)])
MANY = AskRequest(
    questions=[
        Question(key="name", prompt="Your name?"),
        Question(key="colour", prompt="Which?", options=OWN),
        Question(key="tags", prompt="Tags?", multi_select=True, required=False),
        Question(key="more", prompt="More?", options=COLOURS, required=False, multi_select=True),
    ]
)
ESCALATE = EscalateRequest(prompt="It failed.", choices=["retry", "skip", "abort"])
OWN_CHOICES = EscalateRequest(prompt="Which way?", choices=["left", "right"])

# A request, its case's type, what a person answers, and what the asker gets.
TABLE: list[tuple[HitlPayload, str, str, dict[str, Any], Any]] = [
    (APPROVE, "approval", "approve", {}, {"decision": "approve"}),
    (APPROVE, "approval", "approve", {"feedback": "ok"}, {"decision": "approve", "reason": "ok"}),
    (APPROVE, "approval", "reject", {"feedback": "no"}, {"decision": "deny", "reason": "no"}),
    (
        APPROVE,
        "approval",
        "edit",
        {"edits": {**ARGS, "amount": 2}},
        {"decision": "edit", "edited_args": {**ARGS, "amount": 2}},
    ),
    (ConfirmRequest(prompt="Sure?"), "confirmation", "confirm", {}, True),
    (ConfirmRequest(prompt="Sure?"), "confirmation", "cancel", {}, False),
    (ONE, "selection", "select", {"selected": ["blue"]}, {"colour": "blue"}),
    (SOME, "selection", "select", {"selected": ["red", "blue"]}, {"colours": ["red", "blue"]}),
    (
        MANY,
        "input",
        "submit",
        {"q1": "Ada", "q2": "other", "q2_other": "green", "q3": "a\nb"},
        {"name": "Ada", "colour": "green", "tags": ["a", "b"]},
    ),
    (
        MANY,
        "input",
        "submit",
        {"q1": "Ada", "q2": "red", "q4": ["red"]},
        {"name": "Ada", "colour": "red", "more": ["red"]},
    ),
    (ESCALATE, "escalation", "skip", {"reason": "never mind"}, {"action": "skip", "reason": "never mind"}),
    (
        ESCALATE,
        "escalation",
        "retry",
        {"modified_params": {"n": 2}},
        {"action": "retry", "modified_params": {"n": 2}},
    ),
    (OWN_CHOICES, "escalation", "left", {}, {"action": "left"}),
]
table = pytest.mark.parametrize(("payload", "type", "action", "data", "answer"), TABLE)


@dataclass
class Rig:
    """A service, the store below it, and what `on_case` heard."""

    served: Served
    store: SqlCheckpointer
    clock: HandClock
    heard: list[Case]

    async def ask(self, payload: HitlPayload, thread_id: str = "t", **fields: Any) -> str:
        """An agent asks; the id of the case that it becomes."""
        question_id = payload.tool_call_id if isinstance(payload, ApproveRequest) else "q"
        request = HitlRequest(question_id=question_id, payload=payload, created_at=self.clock.now(), **fields)
        await asked(self.store, thread_id, request)
        return await self.case(case_id_of(thread_id, question_id, 1))

    async def case(self, case_id: str) -> str:
        async def known() -> bool:
            return await self.served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

        await until(known)
        return case_id

    async def told(self, case_id: str) -> int:
        """How often `on_case` has heard of a case, once it has."""

        async def heard() -> int:
            return [case.case_id for case in self.heard].count(case_id)

        return await until(heard)

    async def ended(self, case_id: str) -> Case:
        async def final() -> Case | None:
            case = await self.served.service.cases.get(case_id)
            return case if case.is_final else None

        return await until(final)

    async def say(self, case_id: str, action: str, data: dict[str, Any]) -> httpx2.Response:
        """A person answers on the page."""
        link = await review_link(self.served.app, case_id)
        assert (await self.served.http.get(link, headers=BROWSER)).status_code == 200
        url = link.replace("?", "/respond?")
        return await self.served.http.post(url, json={"action": action, "data": data})


@asynccontextmanager
async def rigged(folder: Path) -> AsyncGenerator[Rig]:
    clock, heard = HandClock(), list[Case]()

    async def on_case(case: Case) -> None:
        heard.append(case)

    async with (
        checkpointer_from_url(f"sqlite:///{folder}/t.db", clock=clock) as store,
        serving(store, clock=clock, on_case=on_case) as served,
    ):
        yield Rig(served, store, clock, heard)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with rigged(tmp_path_factory.mktemp("shared")) as rig:
        yield rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(tmp_path) as rig:
        yield rig


@table
async def test_answering_the_case_settles_the_request(
    shared: Rig, payload: HitlPayload, type: str, action: str, data: dict[str, Any], answer: Any
) -> None:
    rig, thread_id = shared, new_id()
    case_id = await rig.ask(payload, thread_id)
    case = await rig.served.service.cases.get(case_id)
    assert case.type == type
    assert case.request is not None
    assert case.request.payload == payload
    assert await rig.told(case_id) == 1
    answered = await rig.say(case_id, action, data)
    assert answered.status_code == 200, answered.text
    settled = await rig.store.settled(thread_id, "q")
    assert settled.status == "answered"
    assert settled.via == "web"
    assert settled.answer is not None
    assert plain_answer(settled.answer) == answer
    late = await rig.say(case_id, action, data)
    assert late.status_code == 409
    assert await rig.told(case_id) == 1


@table
async def test_settling_the_request_closes_the_case(
    shared: Rig, payload: HitlPayload, type: str, action: str, data: dict[str, Any], answer: Any
) -> None:
    rig, thread_id = shared, new_id()
    case_id = await rig.ask(payload, thread_id)
    await rig.store.settle(thread_id, "q", answer, by="ann", via="terminal")
    case = await rig.ended(case_id)
    assert case.status == "completed"
    assert case.result == {"action": action, "data": data}
    assert case.responded_by is None  # nobody has verified it
    assert case.claimed_by == {"name": "ann"}
    [(_, event, _)] = await rig.served.service.cases.events(case_id, 0)
    assert event == "review.completed"


async def test_cancelling_and_timing_out_elsewhere_close_the_case(rig: Rig) -> None:
    cancelled = await rig.ask(APPROVE, "t1")
    await rig.store.cancel("t1", "q", "changed my mind", by="ann")
    case = await rig.ended(cancelled)
    assert (case.status, case.reason) == ("cancelled", "changed my mind")
    gone = await rig.ask(APPROVE, "t2")
    await rig.store.delete("t2")
    assert (await rig.ended(gone)).status == "cancelled"


@pytest.mark.parametrize("seconds", [60, 2.5, 0.25])
async def test_a_time_out_ends_both_with_nobody_connected(rig: Rig, seconds: float) -> None:
    case_id = await rig.ask(APPROVE, timeout_seconds=seconds)
    rig.clock.turn(seconds + 1)
    case = await rig.ended(case_id)
    assert case.status == "expired"
    stored = await rig.store.request("t", "q")
    assert stored is not None
    assert stored.status == "timed_out"
    assert stored.answer is None
    assert (await rig.say(case_id, "approve", {})).status_code == 410


async def test_an_answer_in_time_counts_though_the_case_hears_of_it_late(tmp_path: Path) -> None:
    """The service was away: when it comes back the time is up, but somebody had answered before."""
    clock = HandClock()
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/t.db", clock=clock) as store:
        async with serving(store, clock=clock) as served:
            rig = Rig(served, store, clock, [])
            case_id = await rig.ask(APPROVE, timeout_seconds=60)
        await store.settle("t", "q", {"decision": "approve"}, by="ann")
        clock.turn(120)
        async with serving(store, clock=clock) as served:
            case = await Rig(served, store, clock, []).ended(case_id)
            assert case.status == "completed"
            assert case.result == {"action": "approve", "data": {}}


async def test_a_request_without_a_limit_is_open_for_years(rig: Rig) -> None:
    case_id = await rig.ask(ConfirmRequest(prompt="Sure?"), "t1")
    long = await rig.ask(ConfirmRequest(prompt="Sure?"), "t2", timeout_seconds=1e12)
    rig.clock.turn(5 * 365 * 86_400)
    for each in (case_id, long):
        assert (await rig.say(each, "confirm", {})).status_code == 200


async def test_edited_arguments_have_the_names_and_kinds_of_the_shown(rig: Rig) -> None:
    case_id = await rig.ask(APPROVE)
    for edits in ({"to": "b"}, {**ARGS, "cc": "c"}, {**ARGS, "amount": "3"}):
        answer = await rig.say(case_id, "edit", {"edits": edits})
        assert answer.status_code == 422
        assert answer.json()["faults"]
    stored = await rig.store.request("t", "q")
    assert stored is not None
    assert stored.status == "pending"


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "minLength": 3},
        "amount": {"type": "integer", "minimum": 1},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
    "required": ["to", "amount"],
    "additionalProperties": False,
}


async def test_edited_arguments_are_what_the_tools_schema_asks_for(rig: Rig) -> None:
    args = {**ARGS, "parts": [{"n": 1}]}
    payload = ApproveRequest(
        tool_name="send", tool_call_id="q", args=args, digest=call_digest("send", args), args_schema=SCHEMA
    )
    case_id = await rig.ask(payload)
    edits = {"to": "b", "amount": 0, "parts": [{"n": 1}, {"n": "x"}]}
    refused = await rig.say(case_id, "edit", {"edits": edits})
    assert refused.status_code == 422
    assert refused.json()["faults"] == {
        "data.edits.to": "must have at least 3 characters",
        "data.edits.amount": "must be at least 1",
        "data.edits.parts": "Inside, 1.n must be a whole number.",
    }
    stored = await rig.store.request("t", "q")
    assert stored is not None
    assert stored.status == "pending"
    edits = {"to": "bob", "amount": 1, "parts": []}
    assert (await rig.say(case_id, "edit", {"edits": edits})).status_code == 200


async def test_a_retry_takes_what_the_tools_schema_asks_for(rig: Rig) -> None:
    details: dict[str, Any] = {"tool_name": "send", "tool_call_id": "c", "args": ARGS, "attempt": 1}
    payload = EscalateRequest(
        prompt="Did it end?", choices=["retry", "skip"], details=details, args_schema=SCHEMA
    )
    case_id = await rig.ask(payload)
    refused = await rig.say(case_id, "retry", {"modified_params": {"to": "bob", "amount": 0}})
    assert refused.json()["faults"] == {"data.modified_params.amount": "must be at least 1"}
    again = await rig.say(case_id, "retry", {"modified_params": {"to": "bob", "amount": 2}})
    assert again.status_code == 200


async def test_the_page_shows_the_call_and_the_api_does_not(rig: Rig) -> None:
    case_id = await rig.ask(APPROVE)
    page = await rig.served.http.get(await review_link(rig.served.app, case_id), headers=BROWSER)
    assert "a@example.org" in page.text
    agent = await rig.served.agent()
    assert (await agent.get(f"/v1/reviews/{case_id}/status")).status_code == 404


# Rounds.


async def test_a_call_that_is_asked_again_is_a_new_round(rig: Rig) -> None:
    """The arguments have changed: what was seen cannot be approved any more."""
    first = await rig.ask(APPROVE)
    stale = await review_link(rig.served.app, first)
    other = {**ARGS, "amount": 4000}
    again = ApproveRequest(tool_name="send", tool_call_id="q", args=other, digest=call_digest("send", other))
    request = HitlRequest(question_id="q", payload=again, created_at=rig.clock.now())
    await rig.store.save_pending_request("t", request)
    url = stale.replace("?", "/respond?")
    late = await rig.served.http.post(url, json={"action": "approve"})
    assert late.status_code == 409
    second = await rig.case(case_id_of("t", "q", 2))
    closed = await rig.ended(first)
    assert (closed.status, closed.reason) == ("cancelled", "superseded")
    assert (await rig.served.service.cases.get(second)).previous_case_id == first
    assert (await rig.served.service.cases.get(first)).next_case_id == second
    stored = await rig.store.request("t", "q")
    assert stored is not None
    assert stored.status == "pending"
    assert (await rig.say(second, "approve", {})).status_code == 200


async def test_a_question_that_is_asked_again_is_not_answered_by_the_old_page(rig: Rig) -> None:
    """Without a digest to tell them apart, the round does."""
    first = await rig.ask(ConfirmRequest(prompt="Delete one?"))
    stale = await review_link(rig.served.app, first)
    request = HitlRequest(
        question_id="q", payload=ConfirmRequest(prompt="Delete all?"), created_at=rig.clock.now()
    )
    await rig.store.save_pending_request("t", request)
    late = await rig.served.http.post(stale.replace("?", "/respond?"), json={"action": "confirm"})
    assert late.status_code == 409
    stored = await rig.store.request("t", "q")
    assert stored is not None
    assert stored.status == "pending"


async def test_a_call_that_is_sent_back_with_words_is_followed_by_the_next_try(rig: Rig) -> None:
    first = await rig.ask(APPROVE)
    assert (await rig.say(first, "edit", {"feedback": "a smaller amount"})).status_code == 200
    settled = await rig.store.settled("t", "q")
    assert plain_answer(settled.answer) == {"decision": "deny", "reason": "a smaller amount"}  # type: ignore[arg-type]
    better = ApproveRequest(tool_name="send", tool_call_id="q2", args=ARGS, digest=call_digest("send", ARGS))
    request = HitlRequest(question_id="q2", payload=better, created_at=rig.clock.now())
    await rig.store.save_pending_request("t", request)
    second = await rig.case(case_id_of("t", "q2", 1))
    assert (await rig.served.service.cases.get(second)).previous_case_id == first
    assert (await rig.served.service.cases.get(first)).next_case_id == second
    another = ApproveRequest(tool_name="delete", tool_call_id="q3", args={}, digest=call_digest("delete", {}))
    await rig.store.save_pending_request("t", HitlRequest(question_id="q3", payload=another, created_at=1.0))
    third = await rig.case(case_id_of("t", "q3", 1))
    assert (await rig.served.service.cases.get(third)).previous_case_id is None


async def test_a_request_that_cannot_be_shown_keeps_none_from_it(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(row: RequestRow, rounds: Any = ()) -> Case:
        if row.thread_id == "bad":
            raise KeyError("unreadable: secret-content")
        return adopted_case(row, rounds)

    monkeypatch.setattr("askfirst.service.cases.adopted_case", broken)
    await asked(rig.store, "bad", HitlRequest(question_id="q", payload=APPROVE, created_at=1.0))
    for number in range(3):
        assert await rig.told(await rig.ask(APPROVE, f"t{number}")) == 1
    assert [r.message for r in caplog.records if "cannot become a case" in r.message] == [
        "request 'q' cannot become a case: KeyError"
    ]


async def test_a_listener_that_fails_keeps_none_from_hearing(tmp_path: Path) -> None:
    heard: list[str] = []

    async def on_case(case: Case) -> None:
        heard.append(case.case_id)
        raise RuntimeError("no messenger")

    async with checkpointer_from_url(f"sqlite:///{tmp_path}/t.db") as store:
        now = HandClock().now()  # one that was asked in 1970 would expire before anybody heard of it
        for number in range(3):
            await asked(store, f"t{number}", HitlRequest(question_id="q", payload=APPROVE, created_at=now))
        async with serving(store, on_case=on_case):

            async def all_heard() -> bool:
                return len(set(heard)) == 3

            await until(all_heard)


# An agent itself.


async def test_an_agent_goes_on_when_its_case_is_answered(tmp_path: Path) -> None:
    sent: list[tuple[str, int]] = []

    @tool(requires_approval=True)
    async def send(to: str, amount: int) -> str:
        """Send money."""
        sent.append((to, amount))
        return "sent"

    async with checkpointer_from_url(f"sqlite:///{tmp_path}/t.db") as store, serving(store) as served:
        channel = CheckpointedChannel(checkpointer=store, thread_id="t")
        agent = Agent(
            model=ScriptedModel([ToolCall("call-1", "send", ARGS), "Done."]),
            tools=[send],
            channel=channel,
            checkpointer=store,
            thread_id="t",
        )
        rig = Rig(served, store, HandClock(), [])

        async def person() -> None:
            case_id = await rig.case(case_id_of("t", "call-1", 1))
            edited = {"edits": {**ARGS, "amount": 1}}
            assert (await rig.say(case_id, "edit", edited)).status_code == 200

        result, _ = await asyncio.gather(agent.prompt("Pay"), person())
        assert result.status == "completed"
        assert sent == [("a@example.org", 1)]


async def test_a_paused_agent_is_asked_for_all_its_calls(rig: Rig) -> None:
    calls = [ToolCall(f"c{n}", "send", {"n": n}) for n in range(3)]
    requests = [
        HitlRequest(
            question_id=call.id,
            payload=ApproveRequest(
                tool_name="send", tool_call_id=call.id, args=call.args, digest=call_digest("send", call.args)
            ),
            created_at=rig.clock.now(),
        )
        for call in calls
    ]
    fence = await rig.store.commit("many", prompt(), fence=0, acquire=True)
    await rig.store.commit(
        "many", said(AssistantMessage([*calls, CALL][:3]), opened=requests, release=True), fence=fence
    )
    for request in requests:
        case_id = await rig.case(case_id_of("many", request.question_id, 1))
        assert (await rig.say(case_id, "approve", {})).status_code == 200
    assert await rig.store.pending() == []


# There and back, for any answer.

texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=8)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Question, Any]:
    """A question, and an answer to it; None for none."""
    offered = draw(st.lists(texts, unique=True, max_size=4))
    options = [Option(label=value, value=value) for value in offered]
    own = bool(options) and draw(st.booleans())
    if own:
        options[-1] = options[-1].model_copy(update={"allow_input": True})
    multi, required = draw(st.booleans()), draw(st.booleans())
    question = Question(
        key=draw(texts), prompt="?", options=options or None, multi_select=multi, required=required
    )
    one = st.sampled_from(offered) if offered else texts
    if own:
        one = one | texts
    answer: Any = draw(st.lists(one, unique=True, min_size=1, max_size=3)) if multi else draw(one)
    if own and multi:  # a form has one place for words of one's own, and they stand for the option
        typed = [each for each in answer if each not in offered]
        answer = [each for each in answer if each in offered and each != offered[-1]] + typed[:1]
    return question, answer or None


@given(st.lists(questions(), min_size=1, max_size=4, unique_by=lambda pair: pair[0].key))
def test_an_answer_there_and_back_is_the_same(pairs: list[tuple[Question, Any]]) -> None:
    payload = AskRequest(questions=[question for question, _ in pairs])
    request = HitlRequest(question_id="q", payload=payload, created_at=1.0)
    answers = {question.key: answer for question, answer in pairs if answer is not None}
    if any(question.required and answer is None for question, answer in pairs):
        return
    fit_answer(request, answers)
    result: Any = result_of(request, answers)
    row = RequestRow(
        "t", "q", 1, None, "ask", request.model_dump_json(), None, "pending", 1000, None, *[None] * 6
    )
    case = adopted_case(row)
    assert case_of(row_of(case, 1)).context == case.context
    clean = clean_answer(case, result["action"], result["data"])
    assert answer_of(request, result["action"], clean) == answers


async def test_a_page_names_the_agent_that_asks_a_question(tmp_path: Path) -> None:
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/threads.db") as store, serving(store) as served:
        channel = CheckpointedChannel(checkpointer=store, thread_id="t")
        agent = Agent(
            id="travel-desk",
            model=ScriptedModel(
                [
                    ToolCall("call-1", "ask_user", {"questions": [{"key": "to", "prompt": "Where to?"}]}),
                    "Done.",
                ]
            ),
            tools=[ask_user_tool(channel)],
            channel=channel,
            checkpointer=store,
            thread_id="t",
        )

        async def person() -> str:
            rig = Rig(served, store, HandClock(), [])
            [asked] = await until(store.pending)
            case_id = await rig.case(case_id_of("t", asked.question_id, 1))
            page = await served.http.get(await review_link(served.app, case_id), headers=BROWSER)
            await store.cancel("t", asked.question_id, reason="over")
            return page.text

        _, page = await asyncio.gather(agent.prompt("Book"), person())
        assert "<strong><bdi>travel-desk</bdi></strong> asks you" in page


async def test_a_page_names_nobody_for_a_gate_without_a_name(tmp_path: Path) -> None:
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/gate.db") as store, serving(store) as served:
        async with Gate(store) as gate:
            await gate.open("k", Action(tool="wire", args={"cents": 5}))
        rig = Rig(served, store, HandClock(), [])
        [open_request] = await store.pending()
        case_id = await rig.case(case_id_of(open_request.thread_id, open_request.question_id, 1))
        page = (await served.http.get(await review_link(served.app, case_id), headers=BROWSER)).text
        assert "<strong>An agent</strong> asks" in page
        assert "<bdi>gate</bdi>" not in page
