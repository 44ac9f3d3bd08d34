"""The record stands alone: no act without its row, and no change by hand that it does not show."""

# ruff: noqa: S608  (tampering is written by hand)

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from kit.stores import approval, asked, confirmation, said

from askfirst import Agent, tool
from askfirst.account import os_account
from askfirst.checkpointer.base import Settlement
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.cli.audit import escaped
from askfirst.errors import HitlStaleAnswer
from askfirst.hitl import CheckpointedChannel
from askfirst.hitl.testing import FakeClock
from askfirst.messages import AssistantMessage, ToolCall
from askfirst.models import ScriptedModel
from askfirst.permissions import Decision, PendingAction, SessionPermissionCache, StaticPermissionPolicy
from askfirst.service.audit import export, verify
from askfirst.service.cases import Cases, Respondent, purge
from askfirst.service.keys import Keys
from askfirst.service.new_review import ReviewRequest
from askfirst.store.audit import digest
from askfirst.store.audit_chain import GENESIS, Head, link_all
from askfirst.store.grants import USES
from askfirst.store.statement import Transaction

pytestmark = pytest.mark.anyio


async def rows(checkpointer: SqlCheckpointer) -> list[dict[str, Any]]:
    return [json.loads(line) async for line in export(checkpointer.engine)]


async def acts(checkpointer: SqlCheckpointer) -> list[str]:
    return [row["act"] for row in await rows(checkpointer)]


@tool(requires_approval=True)
async def pay(amount: int, currency: str) -> str:
    """Pay."""
    return f"paid {amount} {currency}"


@tool
async def transfer(amount: int) -> str:
    """Transfer."""
    return f"moved {amount}"


async def payment(checkpointer: SqlCheckpointer) -> str:
    """10,000 EUR are approved by `resume_with` before any service has seen the request; returns the thread."""
    call = AssistantMessage(
        (ToolCall("c1", "pay", {"amount": 10_000, "currency": "EUR"}),), stop_reason="tool_use"
    )
    agent = Agent(model=ScriptedModel([call, "Done."]), tools=[pay], checkpointer=checkpointer)
    await agent.prompt("Pay the invoice.")
    await agent.resume_with([{"id": "c1", "decision": "approve"}], by="ceo@example.com")
    assert "paid 10000 EUR" in str(agent.messages)
    return agent.thread_id


@pytest.mark.attack("M2", "acts without a row")
async def test_a_payment_approved_without_a_service_has_its_rows(checkpointer: SqlCheckpointer) -> None:
    thread_id = await payment(checkpointer)
    opened, answered = await rows(checkpointer)
    assert (opened["act"], opened["subject"]) == ("request.opened", thread_id)
    assert (answered["act"], answered["subject"]) == ("request.answered", thread_id)
    assert (answered["actor"], answered["detail"]["claimed"]) == (os_account(), "ceo@example.com")
    assert answered["detail"]["decision"] == "approve"
    assert answered["detail"]["content_sha256"] == opened["detail"]["content_sha256"]
    verdict = await verify(checkpointer.engine)
    assert (verdict.is_whole, verdict.rows + verdict.unlinked, verdict.older) == (True, 2, 0)
    await link_all(checkpointer.engine)
    verdict = await verify(checkpointer.engine)
    assert (verdict.is_whole, verdict.rows, verdict.unlinked) == (True, 2, 0)


@pytest.mark.attack("M2", "acts without a row")
async def test_every_way_to_settle_a_request_has_its_row(checkpointer: SqlCheckpointer) -> None:
    fence, _ = await asked(checkpointer, "t", approval("a"), confirmation("b"), confirmation("c"))
    await checkpointer.settle("t", "a", {"decision": "deny"})
    await checkpointer.cancel("t", "b", "never mind")
    superseded = said(opened=[confirmation("c", 1_800_000_000.0)])
    fence = await checkpointer.commit("t", superseded, fence=fence, acquire=True)
    step = said(settled=[Settlement("c", "aborted")], release=True)
    await checkpointer.commit("t", step, fence=fence)
    with pytest.raises(HitlStaleAnswer):
        await checkpointer.settle("t", "a", {"decision": "approve"})
    late = confirmation("d", 1.0, timeout_seconds=1.0)
    await checkpointer.save_pending_request("t", late)
    await checkpointer.expire("t", "d")
    for each in ("e", "f"):
        await checkpointer.save_pending_request("t", late.model_copy(update={"question_id": each}))
    await checkpointer.expire_due()
    await checkpointer.save_pending_request("t", confirmation("g"))
    await checkpointer.save_pending_request("t", None)
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t2")
    await checkpointer.save_pending_request("t2", confirmation("h"))
    await channel.answer("h", True)
    await checkpointer.save_pending_request("t2", confirmation("i"))
    await checkpointer.delete("t2")
    named = [(row["act"], row["detail"].get("question_id")) for row in await rows(checkpointer)]
    assert sorted(named, key=str) == sorted(
        [
            *(("request.opened", each) for each in ("a", "b", "c", "c", "d", "e", "f", "g", "h", "i")),
            ("request.answered", "a"),
            ("request.cancelled", "b"),
            ("request.superseded", "c"),
            ("request.aborted", "c"),
            *(("request.timed_out", each) for each in ("d", "e", "f")),
            ("request.cancelled", "g"),
            ("request.answered", "h"),
            ("request.withdrawn", "i"),
            ("thread.deleted", None),
        ],
        key=str,
    )
    verdict = await verify(checkpointer.engine)
    assert (verdict.faults, verdict.older) == ((), 0)


@pytest.mark.attack("M2", "acts without a row")
async def test_grants_keys_and_purges_have_their_rows(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.save_grant("s", "ann:pay:*", {"given_by": "ann"}, created_at=1, expires_at=None)
    assert await checkpointer.delete_grant("s", "ann:pay:*")
    assert not await checkpointer.delete_grant("s", "ann:pay:*")
    keys = Keys(checkpointer.engine)
    key_id, _ = await keys.issue("billing", by="ops")
    await keys.revoke(key_id)
    clock = FakeClock()
    cases = Cases(checkpointer, clock=clock)
    issued = await cases.create(key_id, ReviewRequest(type="confirmation", prompt="Sure?"))
    await cases.answer(issued.case, "confirm", {}, Respondent(by="eve"))
    await clock.advance(100 * 86_400)
    assert await cases.purge(30) == 1
    found = {row["act"]: row for row in await rows(checkpointer)}
    assert found["grant.given"]["detail"]["claimed"] == "ann"
    assert found["grant.revoked"]["detail"] == {"key": "ann:pay:*", "uses": 0}
    assert found["key.created"]["detail"]["claimed"] == "ops"
    assert {found[act]["actor"] for act in ("grant.given", "key.created", "cases.purged")} == {os_account()}
    assert found["cases.purged"]["detail"]["count"] == 1
    assert (found["case.answered"]["actor"], found["case.answered"]["detail"]["claimed"]) == (
        "reviewer",
        "eve",
    )
    verdict = await verify(checkpointer.engine)
    assert verdict.is_whole  # a case that is gone is no fault
    assert await purge(checkpointer) == 0


# What is changed by hand.

REQUEST, CASE = "askfirst_requests", "askfirst_cases"
CHANGED = {
    "a question": (f"UPDATE {REQUEST} SET payload = replace(payload, '10000', '10')", "request c1 of thread"),
    "an answer": (
        f'UPDATE {REQUEST} SET answer = \'{{"decision":"deny"}}\'',
        "its end, answered, was changed or removed",
    ),
    "who answered": (
        f"UPDATE {REQUEST} SET answered_by = 'eve'",
        "its end, answered, was changed or removed",
    ),
    "a deadline": (f"UPDATE {REQUEST} SET expires_at = 1", "its content was changed or removed"),
    "answered, not open": (
        f"UPDATE {REQUEST} SET status = 'pending', answer = NULL, settled_at = NULL",
        "its end, answered, was changed or removed",
    ),
    "a request removed": (f"DELETE FROM {REQUEST}", "its content was changed or removed"),
    "made to look old": (
        f"UPDATE {REQUEST} SET created_at = 1, settled_at = 1",
        "its content was changed or removed",
    ),
    "a case's question": (f"UPDATE {CASE} SET body = replace(body, '49.00', '49,000.00')", "case review_"),
    "a case's answer": (
        f"UPDATE {CASE} SET facts = replace(facts, 'acme', 'evil')",
        "its result is not what was answered",
    ),
    "a case opened again": (
        f"UPDATE {CASE} SET is_open = 1, status = 'pending'",
        "it is open, but it was cancelled according to row",
    ),
    "the unlinked acts removed": (
        "DELETE FROM askfirst_acts WHERE act = 'request.answered'",
        "no row that it was answered",
    ),
    "an unlinked act altered": (
        "UPDATE askfirst_acts SET actor = '\"eve\"'",
        "was altered: its hash does not fit it",
    ),
}


@pytest.mark.attack("M2", "the record against SQL")
@pytest.mark.parametrize(("sql", "told"), CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("linked", [True, False], ids=["linked", "unlinked"])
async def test_a_question_or_an_answer_changed_by_sql_is_found_and_named(
    tmp_path: Path, sql: str, told: str, linked: bool
) -> None:
    linked = linked and "askfirst_acts" not in sql
    async with SQLiteCheckpointer(tmp_path / "x.db") as checkpointer:
        await payment(checkpointer)
        cases = Cases(checkpointer)
        context = {"supplier": "acme", "amount": "49.00"}
        review = ReviewRequest(
            type="selection", prompt="Refund 49.00 EUR?", context={"items": ["acme", "evil"]}
        )
        issued = await cases.create(
            "key_1", review.model_copy(update={"context": {**review.context, **context}})
        )
        await cases.cancel(issued.case, "acme is right", "key_1")
        if linked:
            await link_all(checkpointer.engine)
        before = await verify(checkpointer.engine)
        assert (before.faults, before.older) == ((), 0)
        connection = sqlite3.connect(tmp_path / "x.db")
        assert connection.execute(sql).rowcount >= 1
        connection.commit()
        connection.close()
        verdict = await verify(checkpointer.engine)
        assert not verdict.is_whole
        expected = told.replace("row", "an act") if told.startswith("it is open") and not linked else told
        assert any(expected in fault.problem for fault in verdict.faults), verdict.faults


@pytest.mark.attack("M2", "the record against SQL")
async def test_a_trail_written_anew_is_found_by_a_head_that_was_kept(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "x.db") as checkpointer:
        await payment(checkpointer)
        await link_all(checkpointer.engine)
        verdict = await verify(checkpointer.engine)
        kept = Head(verdict.rows, verdict.head)
        assert (await verify(checkpointer.engine, kept=kept)).is_whole
        connection = sqlite3.connect(tmp_path / "x.db")
        connection.execute("DELETE FROM askfirst_audit")
        connection.execute("DELETE FROM askfirst_audit_head")
        connection.execute("DELETE FROM askfirst_requests")
        connection.commit()
        connection.close()
        assert (await verify(checkpointer.engine)).is_whole
        [fault] = (await verify(checkpointer.engine, kept=kept)).faults
        assert fault.problem == "rows 1 to 2 are missing: the head that was kept had them"
        for thread in ("u", "v"):
            await asked(checkpointer, thread)
        await link_all(checkpointer.engine)
        faults = (await verify(checkpointer.engine, kept=kept)).faults
        assert (
            faults[-1].problem == "row 2, or one before it, was written anew: the head that was kept differs"
        )


# Rows from before there were hashes of contents, and what is written to a terminal.


@pytest.mark.attack("M2", "the record against SQL")
async def test_rows_of_an_earlier_version_stay_verifiable_beneath_new_ones(tmp_path: Path) -> None:
    facts = {"at": 7, "actor": "cli", "act": "key.created", "subject": "key_1", "detail": {"name": "a"}}
    async with SQLiteCheckpointer(tmp_path / "x.db") as checkpointer:
        row = {"seq": 1, "previous": GENESIS, **facts}
        hashed = digest(row)
        connection = sqlite3.connect(tmp_path / "x.db")
        connection.execute(
            "INSERT INTO askfirst_audit (seq, at, actor, act, subject, detail, previous, hash) "
            "VALUES (1, 7, '\"cli\"', 'key.created', '\"key_1\"', '{\"name\":\"a\"}', ?, ?)",
            (GENESIS, hashed),
        )
        connection.execute("INSERT INTO askfirst_audit_head VALUES (1, 1, ?)", (hashed,))
        connection.commit()
        await payment(checkpointer)
        await link_all(checkpointer.engine)
        verdict = await verify(checkpointer.engine)
        assert (verdict.rows, verdict.faults) == (3, ())
        first, second, _ = await rows(checkpointer)
        assert (first, second["previous"]) == ({**row, "hash": hashed}, hashed)
        connection.execute("UPDATE askfirst_audit SET actor = '\"eve\"' WHERE seq = 1")
        connection.commit()
        connection.close()
        [fault] = (await verify(checkpointer.engine)).faults
        assert fault.problem == "row 1 was altered: its hash does not fit it"


@pytest.mark.attack("M2", "the record against SQL")
async def test_what_is_older_than_the_hashes_is_counted_and_not_accused(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "x.db") as checkpointer:
        await asked(checkpointer, "old")
        await checkpointer.settle("old", "call-1", {"decision": "approve"})
        connection = sqlite3.connect(tmp_path / "x.db")
        connection.execute("DELETE FROM askfirst_acts")  # as in a database of an earlier version
        connection.commit()
        connection.close()
        verdict = await verify(checkpointer.engine)
        assert (verdict.is_whole, verdict.older) == (True, 1)
        await payment(checkpointer)
        verdict = await verify(checkpointer.engine)
        assert (verdict.is_whole, verdict.older) == (True, 1)


@pytest.mark.attack("L5", "terminal escapes")
def test_an_export_to_a_terminal_has_no_character_that_acts_or_hides() -> None:
    line = '{"reason":"a\u009b31m b\u202ec d\u200be f\x7fg Zoë"}'
    shown = escaped(line)
    assert json.loads(shown) == json.loads(line)
    assert not set("\u009b\u202e\u200b\x7f") & set(shown)
    assert "Zoë" in shown


@pytest.mark.attack("M2", "acts without a row")
async def test_a_call_that_ran_by_a_grant_says_so_and_is_counted(checkpointer: SqlCheckpointer) -> None:
    asks = StaticPermissionPolicy(
        [{"id": "pay", "scope": {"tool": "transfer"}, "effect": "require_approval"}], Decision.allow()
    )
    policy = SessionPermissionCache(asks, session="s", store=checkpointer)
    grant = await policy.remember(
        PendingAction(tool="transfer", toolset="default"), Decision.allow(), scope="tool", by="ann"
    )
    call = AssistantMessage((ToolCall("c1", "transfer", {"amount": 5}),), stop_reason="tool_use")
    model = ScriptedModel([call, "Done."])
    agent = Agent(model=model, tools=[transfer], checkpointer=checkpointer, policy=policy)
    assert (await agent.prompt("Go.")).text == "Done."

    def uses() -> Transaction[int]:
        return (yield USES, {"granted": grant.digest})[0][0]

    assert await checkpointer.engine.read(uses) == 1
    assert await policy.forget(grant.key)
    given, revoked = await rows(checkpointer)
    assert (given["act"], revoked["act"], revoked["detail"]["uses"]) == ("grant.given", "grant.revoked", 1)
