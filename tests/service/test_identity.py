"""Who answered: by the host's login, and never by what a form says."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from serving import Opened, Served, serving, until
from starlette.requests import Request
from stores import Database, asked

from assent.checkpointer.sql import SqlCheckpointer
from assent.messages import call_digest
from assent.requests import ApproveRequest, HitlRequest
from assent.service.adoption import case_id_of
from assent.service.audit import export
from assent.service.embedding import review_link

pytestmark = pytest.mark.anyio
ANN = {"name": "Ann", "email": "ann@example.com"}


async def by_header(request: Request) -> dict[str, str] | None:
    """What a single sign-on proxy says."""
    said = request.headers.get("x-user")
    return None if said is None else json.loads(said)


async def opened(served: Served) -> Opened:
    return await (await served.agent()).open("approval")


async def audited(store: SqlCheckpointer, case_id: str, act: str) -> dict[str, Any]:
    rows = [json.loads(line) async for line in export(store.engine)]
    [row] = [row for row in rows if row["subject"] == case_id and row["act"] == act]
    return row


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql"], indirect=True)
async def test_a_login_is_who_answered(database: Database) -> None:
    async with database.checkpointer() as store, serving(store, identify=by_header) as served:
        case = await opened(served)
        assert (await case.say("approve", **{"x-user": json.dumps(ANN)})).status_code == 200
        assert (await case.poll())["responded_by"] == ANN
        row = await audited(store, case.case_id, "case.answered")
        assert row["actor"] == "ann@example.com"
        assert row["detail"]["known_by"] == "login"
        assert "Ann" in (await case.visit()).text


async def test_a_login_is_who_settled_an_agents_request(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/cases.db"
    async with serving(url, identify=by_header) as served:
        store = served.service.cases.store
        checkpointer = _checkpointer(served)
        args = {"amount": 3}
        payload = ApproveRequest(
            tool_name="send", tool_call_id="q", args=args, digest=call_digest("send", args)
        )
        await asked(checkpointer, "t", HitlRequest(question_id="q", payload=payload, created_at=1.0))
        case_id = case_id_of("t", "q", 1)

        async def known() -> bool:
            return await store.get(case_id) is not None

        await until(known)
        link, _, token = (await review_link(served.app, case_id)).partition("?")
        body = {"action": "approve", "data": {}}
        answer = await served.http.post(
            f"{link}/respond?{token}", json=body, headers={"x-user": json.dumps({"name": "Ann"})}
        )
        assert answer.status_code == 200, answer.text
        shown = await store.get(case_id)
        assert shown is not None
        assert shown[1] is not None
        assert (shown[1].answered_by, shown[1].via) == ("Ann", "web")
