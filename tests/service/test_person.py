"""Who answered: by the host's login, and never by what a form says."""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import Any

import pytest
from kit.logins import ANN, by_header, signed_in
from kit.running_service import Opened, Served, serving, until
from kit.stores import SHARED, approval, asked
from starlette.requests import Request

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.service.adoption import case_id_of
from askfirst.service.audit import export
from askfirst.service.embedding import review_link
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


async def opened(served: Served) -> Opened:
    return await (await served.agent()).open("approval")


async def answered(store: SqlCheckpointer, case_id: str) -> dict[str, Any]:
    """What the audit trail says of the answer."""
    rows = [json.loads(line) async for line in export(store.engine)]
    [row] = [row for row in rows if row["subject"] == case_id and row["act"] == "case.answered"]
    return row


@each_store
async def test_a_login_is_who_answered(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer, identify=by_header) as served:
        case = await opened(served)
        assert (await case.say("approve", **signed_in(ANN))).status_code == 200
        assert (await case.poll())["responded_by"] == ANN
        row = await answered(checkpointer, case.case_id)
        assert row["actor"] == "ann@example.com"
        assert row["detail"]["known_by"] == "login"
        assert "Ann" in (await case.visit()).text


@each_store
async def test_a_login_is_who_settled_an_agents_request(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer, identify=by_header) as served:
        cases = served.service.cases
        await asked(checkpointer, "t", approval())
        case_id = case_id_of("t", "call-1", 1)

        async def known() -> bool:
            return await cases.engine.read(partial(case_store.shown, case_id)) is not None

        await until(known)
        link = (await review_link(served.app, case_id)).replace("?", "/respond?")
        body = {"action": "approve", "data": {}}
        answer = await served.http.post(link, json=body, headers=signed_in({"name": "Ann"}))
        assert answer.status_code == 200, answer.text
        settled = await checkpointer.settled("t", "call-1")
        assert (settled.answered_by, settled.via) == ("Ann", "web")
        assert (await cases.get(case_id)).responded_by == {"name": "Ann"}


@on_sqlite
async def test_nobody_is_named_who_is_not_signed_in(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer, identify=by_header) as served:
        case = await opened(served)
        assert (await case.say("approve")).status_code == 200
        assert "responded_by" not in await case.poll()
        assert (await answered(checkpointer, case.case_id))["actor"] == "reviewer"


@on_sqlite
async def test_what_a_form_says_of_its_sender_does_not_count(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        case = await opened(served)
        named = {"name": "Eve", "email": "eve@example.com", "responded_by": "Eve", "by": "Eve"}
        assert (await case.form(action="approve", **named)).status_code == 303
        assert "responded_by" not in await case.poll()
        row = await answered(checkpointer, case.case_id)
        assert row["actor"] == "reviewer"
        assert "known_by" not in row["detail"]


@on_sqlite
@pytest.mark.parametrize(
    "user",
    [
        {},
        "Ann",
        ["name", "email"],
        {"name": ""},
        {"name": 7},
        {"email": "no address"},
        {"name": "Ann", "role": "admin"},
        {"name": "A" * 256},
        {"name": "Ann\nthe second"},
        {"name": " Ann"},
    ],
    ids=repr,
)
async def test_an_identity_that_is_none_decides_nothing(checkpointer: SqlCheckpointer, user: Any) -> None:
    async with serving(checkpointer, identify=by_header) as served:
        case = await opened(served)
        refused = await case.say("approve", **signed_in(user))
        assert (refused.status_code, refused.json()["error"]) == (403, "not_identified")
        assert (await case.poll())["status"] == "pending"


@on_sqlite
async def test_a_login_that_fails_decides_nothing_and_the_page_says_so(
    checkpointer: SqlCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "askfirst")

    async def broken(request: Request) -> None:
        raise RuntimeError("session-cookie-0815")

    async with serving(checkpointer, identify=broken) as served:
        case = await opened(served)
        assert (await case.visit()).status_code == 200  # looking needs no name
        refused = await case.form(action="approve", feedback="my long note")
        assert refused.status_code == 403
        assert "It could not be found out who you are." in refused.text
        assert "my long note" in refused.text
        assert (await case.poll())["status"] == "opened"
        assert f"identify failed for {case.case_id}: RuntimeError" in caplog.text
        assert "session-cookie-0815" not in caplog.text
