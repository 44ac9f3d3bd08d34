"""AG-UI: requests as interrupts and resume entries as answers, with the SDK's own types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.pages import run_page
from ag_ui.core import (
    Interrupt,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
)
from ag_ui.encoder import EventEncoder
from pydantic import BaseModel

from askfirst import Gate
from askfirst.adapters.ag_ui import INVALID, AgUiBridge
from askfirst.errors import HitlError

pytestmark = pytest.mark.anyio


class Shop:
    """An agent with one dangerous call, as each process would make it: its store is all that lasts."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.effects: list[int] = []

    def pay(self, cents: int) -> str:
        self.effects.append(cents)
        return f"paid {cents}"

    async def run(
        self, resume: list[Any] | None = None, *, thread: str = "t1", by: str = "ada", run: str = "r"
    ) -> Any:
        """One run in a life of its own; returns its last event, as a front end reads it."""
        document = {"threadId": thread, "runId": run, "messages": [], "resume": resume}
        given = RunAgentInput.model_validate(document)
        async with Gate(self.store, base_url="https://a.example") as gate:

            async def body(given: RunAgentInput) -> AsyncIterator[Any]:
                outcome: Any = await gate.call(
                    self.pay, {"cents": 5}, key=f"ag-ui:{given.thread_id}:1", wait=0
                )
                if isinstance(outcome, BaseException) and not isinstance(outcome, HitlError):
                    raise outcome
                said = getattr(outcome, "result", None) or str(outcome)
                yield TextMessageContentEvent(message_id="m", delta=said)

            events = [it async for it in AgUiBridge(gate).run(given, body, by=by)]
        assert isinstance(events[0], RunStartedEvent)
        for event in events:
            assert EventEncoder().encode(event).startswith("data: {")
        return type(events[-1]).model_validate_json(events[-1].model_dump_json(by_alias=True))

    async def settled(self) -> Any:
        async with Gate(self.store) as gate:
            return await gate.checkpointer.request("gate:ag-ui:t1:1", "call")


def interrupts(event: Any) -> list[Interrupt]:
    assert isinstance(event, RunFinishedEvent)
    assert event.outcome is not None
    return event.outcome.interrupts if event.outcome.type == "interrupt" else []


def entry(interrupt: str, payload: Any = None, status: str = "resolved") -> dict[str, Any]:
    return {"interruptId": interrupt, "status": status, "payload": payload}


@pytest.fixture
def shop(store_url: str) -> Shop:
    return Shop(store_url)


@pytest.fixture
def small(tmp_path: Path) -> Shop:
    return Shop(f"sqlite:///{tmp_path}/a.db")


async def test_ask_answer_and_go_on_each_in_a_life_of_its_own(shop: Shop) -> None:
    [asked] = interrupts(await shop.run())
    assert (asked.reason, asked.message) == ("askfirst:approve", "May pay run?")
    assert asked.response_schema is not None
    assert {"approved", "editedArgs"} <= set(asked.response_schema["properties"])
    told = (asked.metadata or {})["askfirst"]
    assert (told["tool"], told["args"]) == ("pay", {"cents": 5})
    assert told["link"] == f"https://a.example/review/{asked.id}"
    assert shop.effects == []
    ended = await shop.run([entry(asked.id, {"approved": True})])
    assert (ended.outcome.type, shop.effects) == ("success", [5])
    settled = await shop.settled()
    assert (settled.answered_by, settled.via) == ("ada", "ag-ui")
    for again in ([entry(asked.id, {"approved": True})], [entry(asked.id, {"approved": False})], None):
        assert (await shop.run(again)).outcome.type == "success"
    assert shop.effects == [5]
    assert await shop.settled() == settled


async def test_edited_arguments_run(small: Shop) -> None:
    [asked] = interrupts(await small.run())
    await small.run([entry(asked.id, {"approved": True, "editedArgs": {"cents": 3}})])
    assert small.effects == [3]


async def test_a_denial_and_giving_up_run_nothing(small: Shop) -> None:
    [asked] = interrupts(await small.run())
    ended = await small.run([entry(asked.id, {"approved": False, "reason": "too dear"})])
    assert (ended.outcome.type, small.effects) == ("success", [])
    [other] = interrupts(await small.run(thread="t2"))
    await small.run([entry(other.id, status="cancelled")], thread="t2")
    assert small.effects == []


async def test_an_early_resume_and_new_input_are_interrupted_again(small: Shop) -> None:
    [asked] = interrupts(await small.run())
    for early in (None, [], [entry("review_00000000000000000000000000000000", {"approved": True})]):
        [same] = interrupts(await small.run(early))
        assert same == asked
    assert (small.effects, (await small.settled()).status) == ([], "pending")


async def test_the_interrupt_of_another_thread_answers_nothing(small: Shop) -> None:
    [asked] = interrupts(await small.run())
    [own] = interrupts(await small.run([entry(asked.id, {"approved": True})], thread="t2", by="eve"))
    assert own.id != asked.id
    assert (small.effects, (await small.settled()).status) == ([], "pending")


async def test_who_answers_is_the_hosts_word_not_the_payloads(small: Shop) -> None:
    [asked] = interrupts(await small.run())
    claim = {"approved": True, "answered_by": "boss", "by": "boss"}
    await small.run([{**entry(asked.id, claim), "metadata": {"by": "boss"}}], by="eve")
    assert (await small.settled()).answered_by == "eve"
    with pytest.raises(HitlError, match="verified"):
        await small.run([entry(asked.id, claim)], by="")


async def test_a_payload_that_does_not_fit_is_an_error_and_changes_nothing(small: Shop) -> None:
    [asked] = interrupts(await small.run())
    for payload in (None, True, {"approved": "yes"}, {"approved": True, "editedArgs": {"cents": "x"}}):
        error = await small.run([entry(asked.id, payload)])
        assert isinstance(error, RunErrorEvent)
        assert error.code == INVALID
    assert interrupts(await small.run()) == [asked]
    assert small.effects == []


async def test_an_answer_given_elsewhere_goes_on_and_outlives_the_front_ends(small: Shop) -> None:
    [asked] = interrupts(await small.run())
    async with Gate(small.store) as gate:
        await gate.answer("ag-ui:t1:1", {"decision": "deny", "reason": "no"}, by="ben")
    await small.run([entry(asked.id, {"approved": True})], by="eve")
    assert small.effects == []
    assert (await small.settled()).answered_by == "ben"


class Table(BaseModel):
    """A form."""

    guests: int
    size: str | None = None


async def test_every_kind_of_request_is_an_interrupt_with_its_reason(small: Shop) -> None:
    given = RunAgentInput(thread_id="t1", run_id="r", messages=[])
    async with Gate(small.store, timeout="1h") as gate:
        bridge = AgUiBridge(gate)

        async def kinds() -> dict[str, Interrupt]:
            waiting: Any = {f"call_{at}": it for at, it in enumerate(await gate.pending())}
            found = interrupts(await bridge.interrupted(given, waiting))
            return {str(it.metadata["askfirst"]["kind"]): it for it in found if it.metadata}

        for ask in (
            gate.ask(Table, "A table?", key="k1", wait=0),
            gate.confirm("Go on?", key="k2", wait=0),
        ):
            with pytest.raises(BaseException, match="a person has to decide"):
                await ask
        await gate.call(small.pay, {"cents": 5}, key="k3", wait=0)
        found = await kinds()
        assert {kind: it.reason for kind, it in found.items()} == {
            "ask": "input_required",
            "confirm": "confirmation",
            "approve": "tool_call",
        }
        assert found["approve"].tool_call_id == "call_2"
        assert found["ask"].expires_at is not None
        answers = {
            found["ask"].id: {"guests": "4", "size": ""},
            found["confirm"].id: True,
            found["approve"].id: {"approved": True},
        }
        for number, (case, payload) in enumerate(answers.items(), 1):  # the run goes on when all are answered
            resumed = given.model_copy(
                update={
                    "resume": RunAgentInput.model_validate(
                        {"threadId": "t1", "runId": "r", "messages": [], "resume": [entry(case, payload)]}
                    ).resume
                }
            )
            ended = await bridge.resume(resumed, by="ada")
            assert (ended is None) == (number == 3)
        assert (await gate.ask(Table, "A table?", key="k1")).guests == 4
        assert await gate.confirm("Go on?", key="k2") is True


async def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = await run_page("ag-ui")
    asked = [it async for it in page["events"](RunAgentInput(thread_id="t", run_id="r", messages=[]), "ada")]
    [found] = interrupts(RunFinishedEvent.model_validate_json(asked[-1].removeprefix("data: ")))
    document = {
        "threadId": "t",
        "runId": "r2",
        "messages": [],
        "resume": [entry(found.id, {"approved": True})],
    }
    said = [it async for it in page["events"](RunAgentInput.model_validate(document), "ada")]
    assert any("paid back 4900" in it for it in said)
    assert '"type":"success"' in said[-1]
    await page["gate"].aclose()
