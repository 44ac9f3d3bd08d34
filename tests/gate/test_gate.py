"""Functions behind the gate: one decision and one effect for a key, whoever calls and however often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import pytest
from kit.patience import PATIENCE
from pydantic import BaseModel, SecretStr

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import (
    Denied,
    FailedBefore,
    HitlInvalidAnswer,
    HitlInvalidRequest,
    HitlNoPendingRequest,
    HitlTimedOut,
    KeyConflict,
    Pending,
    ResultNotKept,
)
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Ran
from askfirst.permissions import Decision, PendingAction, StaticPermissionPolicy
from askfirst.requests import ConfirmRequest, StoredRequest
from askfirst.workers.continuations import Continuations

pytestmark = pytest.mark.anyio


class Receipt(BaseModel):
    order: str
    cents: int


@dataclass
class Bank:
    """Counts what was paid."""

    paid: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    error: BaseException | None = None

    async def refund(self, order: str, cents: int) -> Receipt:
        """Pay back."""
        self.paid.append((order, cents))
        if self.error is not None:
            raise self.error
        return Receipt(order=order, cents=cents)


@pytest.fixture
async def gate(checkpointer: SqlCheckpointer) -> AsyncIterator[Gate]:
    async with Gate(checkpointer) as made:
        yield made


@pytest.fixture
def bank() -> Bank:
    return Bank()


ARGS = {"order": "A-1042", "cents": 4900}


def answering(gate: Gate, *answers: Any) -> list[StoredRequest]:
    """Have what the gate asks answered, in order; what was asked."""
    asked: list[StoredRequest] = []
    left = list(answers)
    busy: set[asyncio.Task[Any]] = set()

    def opened(request: StoredRequest) -> None:
        asked.append(request)
        if left:
            task = asyncio.ensure_future(gate.answer(request, left.pop(0), by="ada", via="test"))
            busy.add(task)
            task.add_done_callback(busy.discard)

    gate.on_opened(opened)
    return asked


# Decisions.


async def test_an_approved_call_runs_once_and_gives_its_result_ever_after(gate: Gate, bank: Bank) -> None:
    asked = answering(gate, {"decision": "approve"})
    for _ in range(3):
        outcome = await gate.call(bank.refund, ARGS, key="order-1")
        assert outcome == Ran(Receipt(order="A-1042", cents=4900))
    assert bank.paid == [("A-1042", 4900)]
    assert [it.request.payload.kind for it in asked] == ["approve"]


async def test_what_a_person_edits_is_what_runs(gate: Gate, bank: Bank) -> None:
    answering(gate, {"decision": "edit", "edited_args": {"order": "A-1042", "cents": 100}})
    assert await gate.call(bank.refund, ARGS, key="k") == Ran(Receipt(order="A-1042", cents=100))
    assert await gate.call(bank.refund, ARGS, key="k") == Ran(Receipt(order="A-1042", cents=100))
    assert bank.paid == [("A-1042", 100)]


async def test_a_denial_is_final(gate: Gate, bank: Bank) -> None:
    answering(gate, {"decision": "deny", "reason": "not this one"})
    for _ in range(2):
        denied = await gate.call(bank.refund, ARGS, key="k")
        assert isinstance(denied, Denied)
        assert (denied.reason, denied.by, denied.key) == ("not this one", "ada", "k")
    assert bank.paid == []


async def test_nobody_answers_in_place_and_the_next_call_picks_the_decision_up(
    gate: Gate, bank: Bank
) -> None:
    pending = await gate.call(bank.refund, ARGS, key="k", wait=0)
    assert isinstance(pending, Pending)
    assert pending.key == "k"
    assert pending.case.startswith("review_")
    [waiting] = await gate.pending()
    assert waiting.request == pending.request
    await gate.answer("k", {"decision": "approve"})
    assert await gate.pending() == []
    assert await gate.call(bank.refund, ARGS, key="k", wait=0) == Ran(Receipt(order="A-1042", cents=4900))
    with pytest.raises(HitlNoPendingRequest):
        await gate.answer("k", {"decision": "approve"})


async def test_a_request_that_is_cancelled_denies(gate: Gate, bank: Bank) -> None:
    await gate.call(bank.refund, ARGS, key="k", wait=0)
    await gate.cancel("k", "sold out")
    denied = await gate.call(bank.refund, ARGS, key="k")
    assert isinstance(denied, Denied)
    assert "sold out" in denied.reason


async def test_silence_denies(gate: Gate, bank: Bank) -> None:
    denied = await gate.call(bank.refund, ARGS, key="k", timeout=0.05)
    assert isinstance(denied, Denied)
    assert denied.reason == "nobody answered in time"
    assert bank.paid == []


async def test_arguments_are_checked_before_anyone_is_asked(gate: Gate, bank: Bank) -> None:
    with pytest.raises(HitlInvalidRequest, match="cents"):
        await gate.call(bank.refund, {"order": "A", "cents": "many"}, key="k")
    with pytest.raises(HitlInvalidRequest, match="other"):
        await gate.call(bank.refund, {**ARGS, "other": 1}, key="k")
    assert await gate.pending() == []


async def test_an_edit_that_does_not_fit_is_refused_where_it_is_given(gate: Gate, bank: Bank) -> None:
    await gate.call(bank.refund, ARGS, key="k", wait=0)
    with pytest.raises(HitlInvalidAnswer, match="cents"):
        await gate.answer("k", {"decision": "edit", "edited_args": {"order": "A", "cents": "many"}})
    assert len(await gate.pending()) == 1


async def test_a_key_stands_for_one_call(gate: Gate, bank: Bank) -> None:
    await gate.call(bank.refund, ARGS, key="k", wait=0)
    with pytest.raises(KeyConflict, match="'k'"):
        await gate.call(bank.refund, {**ARGS, "cents": 1}, key="k", wait=0)


async def test_a_key_that_the_policy_allowed_stands_for_one_call_too(gate: Gate, bank: Bank) -> None:
    await gate.call(bank.refund, ARGS, key="k", requires_approval=False)
    with pytest.raises(KeyConflict, match="'k'"):
        await gate.call(bank.refund, {**ARGS, "cents": 1}, key="k", requires_approval=False)
    assert len(bank.paid) == 1


async def test_an_edit_may_leave_out_what_has_a_default(gate: Gate) -> None:
    async def refund(order: str, cents: int = 100) -> str:
        """Pay back."""
        return f"{order}: {cents}"

    answering(gate, {"decision": "edit", "edited_args": {"order": "B"}})
    assert await gate.call(refund, {"order": "A"}, key="k") == Ran("B: 100")


async def test_without_a_key_each_call_is_one_of_its_own(gate: Gate, bank: Bank) -> None:
    asked = answering(gate, {"decision": "approve"}, {"decision": "approve"})
    await gate.call(bank.refund, ARGS)
    await gate.call(bank.refund, ARGS)
    assert len(bank.paid) == len(asked) == 2


@pytest.mark.parametrize("key", ["x" * 1000, "naïve/ключ", "a b ", "nul\0", "\ud800"])
async def test_any_text_is_a_key(gate: Gate, bank: Bank, key: str) -> None:
    answering(gate, {"decision": "approve"})
    assert isinstance(await gate.call(bank.refund, ARGS, key=key), Ran)
    assert isinstance(await gate.call(bank.refund, ARGS, key=key), Ran)
    assert len(bank.paid) == 1


async def test_hidden_arguments_are_neither_shown_nor_changed_unseen(gate: Gate) -> None:
    ran: list[str] = []

    async def log_in(user: str, password: SecretStr) -> str:
        """Log in."""
        ran.append(password.get_secret_value())
        return "in"

    pending = await gate.call(log_in, {"user": "a", "password": "s3cret"}, key="k", wait=0)
    assert isinstance(pending, Pending)
    assert "s3cret" not in repr(pending.request) + pending.request.model_dump_json()
    await gate.answer("k", {"decision": "approve"})
    with pytest.raises(KeyConflict):
        await gate.call(log_in, {"user": "a", "password": "another"}, key="k", wait=0)
    assert await gate.call(log_in, {"user": "a", "password": "s3cret"}, key="k", wait=0) == Ran("in")
    assert ran == ["s3cret"]


# Policies.


class Rules:
    """A policy that decides by the amount."""

    def evaluate(self, action: PendingAction) -> Decision:
        cents = action.args["cents"]
        if cents > 100_000:
            return Decision.deny("too much")
        return Decision.ask("above 100") if cents > 10_000 else Decision.allow()


async def test_the_policy_allows_asks_and_denies(checkpointer: SqlCheckpointer, bank: Bank) -> None:
    async with Gate(checkpointer, policy=Rules()) as gate:
        by_policy = {"requires_approval": False}
        assert isinstance(await gate.call(bank.refund, {"order": "a", "cents": 1}, key="a", **by_policy), Ran)
        assert isinstance(await gate.call(bank.refund, {"order": "a", "cents": 1}, key="a", **by_policy), Ran)
        asked = await gate.call(bank.refund, {"order": "b", "cents": 20_000}, key="b", wait=0, **by_policy)
        assert isinstance(asked, Pending)
        assert asked.request.payload.details == {"reason": "above 100"}
        denied = await gate.call(bank.refund, {"order": "c", "cents": 200_000}, key="c", **by_policy)
        assert isinstance(denied, Denied)
        assert denied.reason == "too much"
        assert bank.paid == [("a", 1)]


async def test_an_edit_is_put_to_the_policy(checkpointer: SqlCheckpointer, bank: Bank) -> None:
    async with Gate(checkpointer, policy=Rules()) as gate:
        answering(gate, {"decision": "edit", "edited_args": {"order": "b", "cents": 200_000}})
        denied = await gate.call(bank.refund, {"order": "b", "cents": 20_000}, key="b")
        assert isinstance(denied, Denied)
        assert bank.paid == []


async def test_a_predicate_that_fails_asks(gate: Gate, bank: Bank) -> None:
    def broken(args: Any) -> bool:
        raise RuntimeError

    assert isinstance(await gate.call(bank.refund, ARGS, key="k", wait=0, requires_approval=broken), Pending)


async def test_a_function_without_effects_leaves_no_trace(gate: Gate, bank: Bank) -> None:
    free = {"requires_approval": False, "effect": "none"}
    for _ in range(2):
        assert isinstance(await gate.call(bank.refund, ARGS, key="k", **free), Ran)
    assert len(bank.paid) == 2
    assert await gate._store.threads() == []


# Effects.


async def test_a_body_that_fails_does_not_run_again(gate: Gate, bank: Bank) -> None:
    bank.error = ValueError("the bank is closed")
    answering(gate, {"decision": "approve"})
    with pytest.raises(ValueError, match="the bank is closed"):
        await gate.call(bank.refund, ARGS, key="k")
    with pytest.raises(FailedBefore, match="ValueError: the bank is closed"):
        await gate.call(bank.refund, ARGS, key="k")
    assert len(bank.paid) == 1


@pytest.mark.parametrize(("answer", "times"), [("retry", 2), ("skip", 1), ("abort", 1)])
async def test_a_body_that_was_cut_off_is_a_persons_to_decide(
    gate: Gate, bank: Bank, answer: str, times: int
) -> None:
    bank.error = asyncio.CancelledError()
    asked = answering(gate, {"decision": "approve"}, answer)
    with pytest.raises(asyncio.CancelledError):
        await gate.call(bank.refund, ARGS, key="k")
    bank.error = None
    outcome = await gate.call(bank.refund, ARGS, key="k")
    assert isinstance(outcome, Ran if answer == "retry" else Denied)
    assert len(bank.paid) == times
    assert [it.request.payload.kind for it in asked] == ["approve", "escalate"]
    assert asked[1].request.payload.call is not None


@pytest.mark.parametrize("choice", ["skip", "abort"])
async def test_who_does_not_run_a_lost_body_again_says_why(gate: Gate, bank: Bank, choice: str) -> None:
    bank.error = asyncio.CancelledError()
    answering(gate, {"decision": "approve"}, {"action": choice, "reason": "Seen at the bank."})
    with pytest.raises(asyncio.CancelledError):
        await gate.call(bank.refund, ARGS, key="k")
    outcome = await gate.call(bank.refund, ARGS, key="k")
    assert isinstance(outcome, Denied)
    assert outcome.reason.endswith("chose not to run it again: Seen at the bank.")
    assert outcome.by == "ada"


@pytest.mark.parametrize("effect", ["idempotent"])
async def test_an_idempotent_body_that_was_cut_off_runs_again(gate: Gate, bank: Bank, effect: str) -> None:
    bank.error = asyncio.CancelledError()
    asked = answering(gate, {"decision": "approve"})
    with pytest.raises(asyncio.CancelledError):
        await gate.call(bank.refund, ARGS, key="k", effect=effect)
    bank.error = None
    assert isinstance(await gate.call(bank.refund, ARGS, key="k", effect=effect), Ran)
    assert len(asked) == 1


@pytest.mark.parametrize("result", [object(), "x" * 1_000_001, float("nan")])
async def test_a_result_that_cannot_be_kept_is_never_made_twice(gate: Gate, result: Any) -> None:
    ran: list[int] = []

    async def make() -> Any:
        """Make it."""
        ran.append(1)
        return result

    outcome = await gate.call(make, key="k", requires_approval=False)
    assert isinstance(outcome, Ran)
    assert outcome.result is result
    if result == result:
        with pytest.raises(ResultNotKept, match="SHA-256"):
            await gate.call(make, key="k", requires_approval=False)
    assert ran == [1]


async def test_many_call_one_key_at_once(gate: Gate, bank: Bank) -> None:
    asked = answering(gate, {"decision": "approve"})
    async with asyncio.timeout(PATIENCE):
        outcomes = await asyncio.gather(*(gate.call(bank.refund, ARGS, key="k") for _ in range(20)))
    assert outcomes == [Ran(Receipt(order="A-1042", cents=4900))] * 20
    assert len(bank.paid) == 1
    assert len(asked) == 1


# Guarded functions.


async def test_a_guarded_function_keeps_what_it_is(gate: Gate) -> None:
    @gate.guarded(
        sentence="Pay back {cents:money:EUR} for {order}", approve="Pay {cents:money:EUR}", risk="high"
    )
    async def refund(order: str, cents: int = 100) -> str:
        """Pay money back."""
        return f"{order}: {cents}"

    assert (refund.__name__, refund.__doc__) == ("refund", "Pay money back.")
    asked = answering(gate, {"decision": "approve"})
    assert await refund("A-1", cents=4900) == "A-1: 4900"
    payload = asked[0].request.payload
    assert payload.sentences == ["Pay back 49.00 EUR for A-1"]
    assert payload.display == {
        "sentence": "Pay back 49.00 EUR for A-1",
        "approve": "Pay 49.00 EUR",
        "templates": {
            "sentence": "Pay back {cents:money:EUR} for {order}",
            "approve": "Pay {cents:money:EUR}",
        },
        "formats": {"cents": "money:EUR"},
        "description": "Pay money back.",
        "risk": "high",
    }


async def test_a_guarded_function_raises_what_it_was_told(gate: Gate) -> None:
    @gate.guarded(wait=0, key=lambda order: f"refund-{order}")
    async def refund(order: str) -> str:
        """Pay money back."""
        return order

    with pytest.raises(Pending) as pending:
        await refund("A-1")
    assert pending.value.key == "refund-A-1"
    await gate.answer("refund-A-1", {"decision": "deny", "reason": "no"})
    with pytest.raises(Denied, match="no"):
        await refund("A-1")


async def test_methods_and_class_methods(gate: Gate) -> None:
    class Desk:
        def __init__(self, name: str) -> None:
            self.name = name

        @gate.guarded(requires_approval=False)
        async def greet(self, who: str) -> str:
            """Greet."""
            return f"{self.name} greets {who}"

        @classmethod
        @gate.guarded(requires_approval=False)
        async def made(cls, who: str) -> str:
            """Make."""
            return f"{cls.__name__} made {who}"

    assert await Desk("Ada").greet("Bob") == "Ada greets Bob"
    assert await Desk("Eve").greet(who="Bob") == "Eve greets Bob"
    assert await Desk.made("Bob") == "Desk made Bob"


async def test_the_words_of_a_method_are_shown(gate: Gate) -> None:
    class Desk:
        @gate.guarded(sentence="Greet {who}", risk="high")
        async def greet(self, who: str) -> str:
            """Greet."""
            return who

    asked = answering(gate, {"decision": "approve"})
    assert await Desk().greet("Bob") == "Bob"
    words = asked[0].request.payload.words
    assert (words["sentence"], words["risk"]) == ("Greet Bob", "high")


async def test_a_rules_reason_and_risk_reach_the_request(checkpointer: SqlCheckpointer) -> None:
    told = {"reason": "A person looks.", "risk": "critical", "hold_seconds": 20}
    rule = {"id": "all", "effect": "require_approval", **told}
    async with Gate(checkpointer, policy=StaticPermissionPolicy([rule])) as gate:

        @gate.guarded(requires_approval=False)
        async def send(to: str) -> str:
            """Send."""
            return to

        asked = answering(gate, {"decision": "approve"})
        assert await send("Bob") == "Bob"
    details = asked[0].request.payload.details or {}
    assert details == {"matched_rule_id": "all", **told}


# Questions.


class Reason(Enum):
    BROKEN = "broken"
    LATE = "late"


class Refund(BaseModel):
    cents: int
    reason: Reason
    to: Literal["card", "account"] = "card"
    urgent: bool = False
    note: str | None = None


async def test_a_model_is_asked_for_as_a_form(gate: Gate) -> None:
    asked = answering(gate, {"cents": "4900", "reason": "late", "to": "account", "urgent": "true"})
    refund = await gate.ask(Refund, "How much do we pay back?", context={"order": "A-1"}, key="k")
    assert refund == Refund(cents=4900, reason=Reason.LATE, to="account", urgent=True)
    [questions] = [it.request.payload.questions_asked for it in asked]
    assert [(it.key, it.required) for it in questions] == [
        ("cents", True),
        ("reason", True),
        ("to", False),
        ("urgent", False),
        ("note", False),
    ]
    assert "How much do we pay back?" in questions[0].prompt
    assert "order: A-1" in questions[0].prompt
    assert await gate.ask(Refund, "How much do we pay back?", context={"order": "A-1"}, key="k") == refund


async def test_an_answer_that_the_model_refuses_is_asked_for_again(gate: Gate) -> None:
    asked = answering(gate, {"cents": "much", "reason": "late"}, {"cents": "1", "reason": "late"})
    assert (await gate.ask(Refund, "How much?", key="k")).cents == 1
    assert "The last answer did not fit: cents" in asked[1].request.payload.sentences[0]


async def test_confirm_and_choose(gate: Gate) -> None:
    answering(gate, True, {"choice": "b"})
    assert await gate.confirm("Go on?", context={"why": "because"}, key="1") is True
    assert await gate.choose("Which?", {"a": "First", "b": "Second"}, key="2") == "b"
    assert await gate.choose("Which?", {"a": "First", "b": "Second"}, key="2") == "b"
    with pytest.raises(HitlInvalidRequest):
        await gate.choose("Which?", [])


async def test_a_question_that_nobody_answers(gate: Gate) -> None:
    with pytest.raises(Pending):
        await gate.confirm("Go on?", key="k", wait=0)
    with pytest.raises(HitlTimedOut):
        await gate.confirm("Go on?", key="k2", timeout=0.05)


# Its store.


async def test_a_gate_opens_its_store_at_first_use(tmp_path: Any, bank: Bank) -> None:
    url = f"sqlite:///{tmp_path}/gate.db"
    gate = Gate(url)
    assert isinstance(await gate.call(bank.refund, ARGS, key="k", wait=0), Pending)
    await gate.aclose()
    async with SQLiteCheckpointer(tmp_path / "gate.db") as store:
        assert len(await store.pending()) == 1
    async with Gate(url) as again:
        await again.answer("k", {"decision": "approve"})
        assert isinstance(await again.call(bank.refund, ARGS, key="k"), Ran)


async def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(Exception, match="a gate needs a store"):
        Gate(object())  # type: ignore[arg-type]


async def test_an_answer_to_a_question_makes_its_thread_go_on(
    gate: Gate, checkpointer: SqlCheckpointer
) -> None:
    payload = ConfirmRequest(prompt="Go on?")
    for _ in range(2):  # who asks again gets the same question
        asked = await gate.question("k", "ask", payload, {}, resumer="mine", resumes="thread-7")
        assert asked.status == "pending"
    continuations = Continuations(checkpointer)
    assert await continuations.list() == []
    await gate.answer("k", True, by="ada")
    [due] = await continuations.list()
    assert (due.thread_id, due.resumer, due.state) == ("thread-7", "mine", "due")
    assert (await gate.question("k", "ask", payload, {})).answer is True
    with pytest.raises(KeyConflict):
        await gate.question("k", "ask", ConfirmRequest(prompt="Stop?"), {}, resumer="mine")


async def test_a_gate_that_has_a_name_says_who_asks(checkpointer: SqlCheckpointer, bank: Bank) -> None:
    gate = Gate(checkpointer, agent="refund-desk")
    pending = await gate.call(bank.refund, ARGS, key="k", wait=0)
    assert isinstance(pending, Pending)
    assert pending.request.agents == ["refund-desk"]
    with pytest.raises(Pending) as asked:
        await gate.confirm("Go on?", key="q", wait=0)
    assert asked.value.request.agents == ["refund-desk"]
    assert [it.request.agents for it in await checkpointer.pending()] == [["refund-desk"]] * 2


async def test_a_policy_knows_who_asks_at_a_gate(checkpointer: SqlCheckpointer, bank: Bank) -> None:
    seen: list[PendingAction] = []

    class Seeing:
        async def evaluate(self, action: PendingAction) -> Decision:
            seen.append(action)
            return Decision.allow()

    gate = Gate(checkpointer, agent="refund-desk", policy=Seeing())
    assert isinstance(await gate.call(bank.refund, ARGS, key="k", requires_approval=False), Ran)
    assert {it.agent_path for it in seen} == {("refund-desk",)}
