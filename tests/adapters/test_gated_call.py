"""What every adapter takes from the gate: one decision, one effect, and a sentence for the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from askfirst import Gate, Pending, Ran
from askfirst.adapters.gated_call import Codec, GatedTools, NotRun, Start
from askfirst.permissions import ArgConstraint, Rule, Scope, StaticPermissionPolicy

pytestmark = pytest.mark.anyio
PLAIN: Codec[Any] = Codec(lambda it: it, lambda it: it)


class Payments:
    """A body that counts how often it ran."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []

    async def pay(self, start: Start) -> str:
        self.made.append(dict(start.args))
        return f"paid {start.args['cents']}"


def _call(gate: Gate, args: dict[str, Any], tools: Any = ("pay",)) -> Any:
    return GatedTools.of(gate, "test", tools, "test").call("pay", args, thread="t1", call_id="c1")


async def test_it_waits_then_runs_once_and_gives_the_stored_result_ever_after(tmp_path: Path) -> None:
    url, payments = f"sqlite:///{tmp_path}/a.db", Payments()
    async with Gate(url) as gate:
        waits = await _call(gate, {"cents": 5}).run(payments.pay, PLAIN)
        assert isinstance(waits, Pending)
        assert waits.key == "test:t1:c1"
        assert payments.made == []
        await gate.answer(waits.key, {"decision": "approve"}, by="ada")
    for _ in range(2):
        async with Gate(url) as gate:
            assert await _call(gate, {"cents": 5}).run(payments.pay, PLAIN) == Ran(("paid 5", None))
    assert payments.made == [{"cents": 5}]


async def test_edited_arguments_run_and_the_model_is_told(tmp_path: Path) -> None:
    payments = Payments()
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        await _call(gate, {"cents": 5}).run(payments.pay, PLAIN)
        await gate.answer("test:t1:c1", {"decision": "edit", "edited_args": {"cents": 3}}, by="ada")
        ran = await _call(gate, {"cents": 5}).run(payments.pay, PLAIN)
        assert isinstance(ran, Ran)
        assert ran.result[0] == "paid 3"
        assert '{"cents": 3}' in (ran.result[1] or "")
    assert payments.made == [{"cents": 3}]


async def test_edited_arguments_that_the_policy_denies_do_not_run(tmp_path: Path) -> None:
    large = ArgConstraint("cents", "gt", 9)
    policy = StaticPermissionPolicy(
        [
            Rule(id="large", scope=Scope(tool="pay", arg_constraints=[large]), effect="deny"),
            Rule(id="pay", scope=Scope(tool="pay"), effect="require_approval"),
        ]
    )
    payments = Payments()
    async with Gate(f"sqlite:///{tmp_path}/a.db", policy=policy) as gate:
        await _call(gate, {"cents": 5}, None).run(payments.pay, PLAIN)
        await gate.answer("test:t1:c1", {"decision": "edit", "edited_args": {"cents": 10}}, by="ada")
        assert isinstance(await _call(gate, {"cents": 5}, None).run(payments.pay, PLAIN), NotRun)
    assert payments.made == []


async def test_arguments_altered_after_they_were_asked_about_do_not_run(tmp_path: Path) -> None:
    payments = Payments()
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        await _call(gate, {"cents": 5}).run(payments.pay, PLAIN)
        await gate.answer("test:t1:c1", {"decision": "approve"}, by="ada")
        told = await _call(gate, {"cents": 9999}).run(payments.pay, PLAIN)
        assert told == NotRun("pay was not run: its arguments are not those that a person was asked about.")
    assert payments.made == []


async def test_a_denied_call_tells_the_model_why(tmp_path: Path) -> None:
    payments = Payments()
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        await _call(gate, {"cents": 5}).run(payments.pay, PLAIN)
        await gate.answer("test:t1:c1", {"decision": "deny", "reason": "too much"}, by="ada")
        assert await _call(gate, {"cents": 5}).run(payments.pay, PLAIN) == NotRun(
            "A person denied pay: too much"
        )
    assert payments.made == []


async def test_a_body_that_raises_is_not_run_again(tmp_path: Path) -> None:
    ran: list[int] = []

    async def fails(start: Start) -> str:
        ran.append(1)
        raise ValueError("no money")

    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:
        await _call(gate, {"cents": 5}).run(fails, PLAIN)
        await gate.answer("test:t1:c1", {"decision": "approve"}, by="ada")
        with pytest.raises(ValueError, match="no money"):
            await _call(gate, {"cents": 5}).run(fails, PLAIN)
        told = await _call(gate, {"cents": 5}).run(fails, PLAIN)
        assert told == NotRun("pay failed: ValueError: no money")
    assert ran == [1]


def test_the_same_without_an_event_loop(tmp_path: Path) -> None:
    gate, made = Gate(f"sqlite:///{tmp_path}/a.db"), []

    def pay(start: Start) -> str:
        made.append(start.args)
        return "paid"

    assert isinstance(_call(gate, {"cents": 5}).run_sync(pay, PLAIN), Pending)
    gate.portal.run(lambda it: it.answer("test:t1:c1", {"decision": "approve"}, by="ada"))
    assert _call(gate, {"cents": 5}).run_sync(pay, PLAIN) == Ran(("paid", None))
    assert _call(gate, {"cents": 5}).run_sync(pay, PLAIN) == Ran(("paid", None))
    gate.portal.close()
    assert made == [{"cents": 5}]


def test_one_text_in_place_of_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="several names"):
        GatedTools.of(Gate(f"sqlite:///{tmp_path}/a.db"), "test", "pay")


async def test_an_answer_between_two_looks_at_the_store_counts(tmp_path: Path) -> None:
    payments = Payments()
    async with Gate(f"sqlite:///{tmp_path}/a.db") as gate:

        async def person(request: Any) -> None:  # answers before the call has looked what is open
            await gate.answer(request, {"decision": "approve"}, by="ada")

        gate.on_opened(person)
        assert await _call(gate, {"cents": 5}).run(payments.pay, PLAIN) == Ran(("paid 5", None))
