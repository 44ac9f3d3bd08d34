"""Drafts: what a person has filled in is kept for them, told to nobody, and gone when the case ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kit.running_service import HandClock, Served, serving, until

pytestmark = pytest.mark.anyio

FORM: dict[str, Any] = {
    "session_id": "s1",
    "fields": [
        {"key": "name", "label": "Name", "type": "text", "required": True},
        {"key": "note", "label": "Note", "type": "textarea"},
    ],
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as service:
        yield service


async def draft(case: Any, **fields: str) -> Any:
    named = {f"f.{key}": value for key, value in fields.items()}
    return await case.form(step="1", intent="draft", shown=["name", "note"], **named)


async def test_a_draft_is_there_when_the_person_comes_back(served: Served) -> None:
    agent = await served.agent()
    case, other = (
        await agent.open("input", context={"form": FORM}),
        await agent.open("input", context={"form": FORM}),
    )
    assert (await draft(case, name="Ada", note="half-way-through")).status_code == 200
    assert "half-way-through" in (await case.visit()).text
    assert "half-way-through" not in (await other.visit()).text
    polled = await case.poll()
    assert polled["status"] == "in_progress"
    assert polled["progress"] == {"completed_fields": 2, "total_fields": 2}
    assert "half-way-through" not in str(polled)
    told = await served.service.cases.events(case.case_id, 0)
    assert "half-way-through" not in str(told)


async def test_the_same_draft_again_is_no_news(served: Served) -> None:
    case = await (await served.agent()).open("input", context={"form": FORM})
    for _ in range(3):
        await draft(case, name="Ada")
    assert len(await served.service.cases.events(case.case_id, 0)) == 1
    await draft(case, name="Ada", note="x")
    assert len(await served.service.cases.events(case.case_id, 0)) == 2
    case.http.cookies.clear()  # the answer, with its cookie, did not arrive
    await draft(case, name="Ada", note="x")
    assert len(await served.service.cases.events(case.case_id, 0)) == 2


@pytest.mark.parametrize("end", ["answer", "cancel", "expire"])
async def test_a_draft_goes_when_the_case_ends(tmp_path: Path, end: str) -> None:
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/c.db", clock=clock) as served:
        case = await (await served.agent()).open("input", context={"form": FORM}, timeout="1h")
        await draft(case, name="Ada", note="never sent")
        if end == "answer":
            await case.say("submit", {"name": "Bea"})
        elif end == "cancel":
            await case.cancel()
        else:
            clock.turn(3600)

        async def ended() -> bool:
            return (await served.service.cases.get(case.case_id)).is_final

        await until(ended)
        assert (await served.service.cases.get(case.case_id)).draft is None
        assert "progress" not in await case.poll()
        late = await draft(case, name="Too late")
        assert late.status_code in (409, 410)
        assert (await served.service.cases.get(case.case_id)).draft is None


async def test_a_draft_is_checked_only_when_it_is_sent(served: Served) -> None:
    case = await (await served.agent()).open("input", context={"form": FORM})
    assert (await draft(case, note="no name yet")).status_code == 200
    refused = await case.form(step="1", shown=["name", "note"], **{"f.note": "no name yet"})
    assert refused.status_code == 422
    assert "no name yet" in refused.text
    assert (await case.poll())["status"] == "in_progress"
