"""Codes by e-mail: sent where the case says, good for a while, for one answer, and kept nowhere."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kit.logins import ANN, by_header, signed_in
from kit.running_service import HandClock, Opened, Served, serving
from kit.smtp_mailbox import Mailbox, mailbox
from kit.stores import SHARED, Database
from sqlalchemy import select

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import ServiceError
from askfirst.service import email_codes
from askfirst.service.app import create_app
from askfirst.service.audit import export
from askfirst.service.email_codes import Mailer
from askfirst.smtp import masked_address
from askfirst.store.case_tables import email_codes as code_table
from askfirst.store.statement import Statement

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
MAIL = "ann@example.com"


@dataclass
class Rig:
    served: Served
    box: Mailbox
    clock: HandClock
    store: SqlCheckpointer

    async def open(self, type: str = "approval", verify_email: Any = MAIL, **fields: Any) -> Opened:
        return await (await self.served.agent()).open(type, verify_email=verify_email, **fields)

    async def code(self, case: Opened, place: int = 0) -> str:
        """Have a code sent, and read it."""
        before = len(self.box.mails)
        assert (await case.form(send_code=str(place))).status_code == 200
        [code] = self.box.codes[before:]
        return code

    async def audited(self, case: Opened) -> list[dict[str, Any]]:
        rows = [json.loads(line) async for line in export(self.store.engine)]
        return [row for row in rows if row["subject"] == case.case_id]


@pytest.fixture
async def rig(checkpointer: SqlCheckpointer) -> AsyncIterator[Rig]:
    clock = HandClock()
    async with (
        mailbox() as box,
        serving(checkpointer, clock=clock, smtp_url=box.url, identify=by_header, inline=True) as served,
    ):
        yield Rig(served, box, clock, checkpointer)


def another(code: str) -> str:
    """A code that this is not."""
    return f"{(int(code) + 1) % 1_000_000:06}"


def _codes() -> Any:
    return (yield Statement(select(code_table)), {})


async def say(case: Opened, code: str | None, **headers: str) -> Any:
    """Approve as JSON."""
    body = {"action": "approve"} | ({} if code is None else {"email_code": code})
    path = f"/review/{case.case_id}/respond?token={case.token}"
    return await case.http.post(path, json=body, headers=headers)


@each_store
async def test_a_code_lets_one_answer_through_and_says_whose_it_is(rig: Rig) -> None:
    case = await rig.open()
    page = await case.visit()
    assert MAIL not in page.text
    sent = await case.form(action="approve", note="my note")
    assert sent.status_code == 200
    assert "We sent a code to" in sent.text
    assert "a***@example.com" in sent.text
    assert MAIL not in sent.text
    assert "my note" in sent.text
    [mail], [code] = rig.box.mails, rig.box.codes
    assert (mail["To"], mail["From"]) == (MAIL, "desk@a.example")
    assert rig.box.logins == [(b"desk@a.example", b"pass/word")]
    assert code not in sent.text
    done = await case.form(action="approve", email_code=f" {code[:3]} {code[3:]} ")
    assert done.status_code == 303
    polled = await case.poll()
    assert polled["status"] == "completed"
    assert polled["responded_by"] == {"email": MAIL}
    acts = [(row["act"], row["actor"]) for row in await rig.audited(case)]
    assert ("case.answered", MAIL) in acts
    assert acts.count(("case.code_sent", "reviewer")) == 1


@each_store
async def test_wrong_late_and_missing_codes_decide_nothing(rig: Rig) -> None:
    case = await rig.open()
    none_yet = await case.form(action="approve", email_code="123456")
    assert "There is no code that can be used now." in none_yet.text
    missing = await case.form(action="approve", note="my note", with_code="1")
    assert missing.status_code == 403
    assert "Enter the code that was sent to you by e-mail." in missing.text
    assert "my note" in missing.text
    code = await rig.code(case)
    for wrong in (another(code), "12345", "1234567", "abcdef", "١٢٣٤٥٦"):
        refused = await case.form(action="approve", email_code=wrong)
        assert refused.status_code == 403
        assert "This is not the code that was sent." in refused.text
        assert wrong not in refused.text
    rig.clock.turn(600)
    late = await case.form(action="approve", email_code=code)
    assert "There is no code that can be used now." in late.text
    assert (await case.poll())["status"] == "pending"


@each_store
async def test_a_code_can_be_tried_five_times(rig: Rig) -> None:
    case = await rig.open()
    code = await rig.code(case)
    tries = [await say(case, another(code)) for _ in range(5)]
    assert {each.status_code for each in tries} == {403}
    right = await say(case, code)
    assert (right.status_code, right.json()["error"]) == (403, "verification_failed")
    assert (await say(case, await rig.code(case))).status_code == 200  # a new one has tries of its own


@each_store
async def test_tries_at_once_are_no_more_tries(rig: Rig) -> None:
    case = await rig.open()
    code = await rig.code(case)
    await asyncio.gather(*(say(case, another(code)) for _ in range(12)))
    [row] = await rig.store.engine.read(_codes)
    assert row[code_table.c.keys().index("tries")] == email_codes.MOST_TRIES
    assert (await say(case, code)).status_code == 403


@each_store
async def test_a_code_counts_once(rig: Rig) -> None:
    case = await rig.open()
    code = await rig.code(case)
    opened = await rig.served.service.cases.get(case.case_id)
    codes = rig.served.service.email_codes
    assert codes is not None
    used = await asyncio.gather(*(codes.check(opened, code) for _ in range(4)), return_exceptions=True)
    assert [each for each in used if isinstance(each, str)] == [MAIL]
    assert (await say(case, code)).status_code == 403


@each_store
async def test_five_codes_an_hour_are_sent(rig: Rig) -> None:
    case, other = await rig.open(), await rig.open()
    answers = await asyncio.gather(*(case.form(send_code="0") for _ in range(8)))
    assert sorted(each.status_code for each in answers) == [200] * 5 + [429] * 3
    assert len(rig.box.mails) == 5
    assert "Enough codes were sent within an hour" in (await case.form(send_code="0")).text
    await rig.code(other)
    rig.clock.turn(3600)
    await rig.code(case)


@on_sqlite
async def test_a_code_belongs_to_its_case(rig: Rig) -> None:
    case, other = await rig.open(), await rig.open()
    code = await rig.code(case)
    while (await rig.code(other)) == code:
        """The same by chance."""
    assert (await say(other, code)).status_code == 403
    assert (await other.poll())["status"] == "pending"
    assert (await say(case, code)).status_code == 200


@on_sqlite
async def test_a_code_of_an_older_mail_is_good_too(rig: Rig) -> None:
    case = await rig.open(verify_email=[MAIL, "bob@example.org", MAIL])
    page = (await case.form(action="approve")).text
    assert page.count('name="send_code"') == 2
    rig.box.mails.clear()
    first = await rig.code(case, 0)
    await rig.code(case, 1)
    assert [mail["To"] for mail in rig.box.mails] == [MAIL, "bob@example.org"]
    assert (await say(case, first)).status_code == 200
    assert (await case.poll())["responded_by"] == {"email": MAIL}


@on_sqlite
async def test_nobody_else_can_be_sent_a_code(rig: Rig) -> None:
    case = await rig.open()
    for place in ("1", "999", "-1", "eve@example.com", "1" * 50):
        await case.form(send_code=place, email="eve@example.com", to="eve@example.com")
    assert rig.box.mails == []


@on_sqlite
async def test_a_login_names_the_address_only_if_it_is_its_own(rig: Rig) -> None:
    case = await rig.open()
    assert (await say(case, await rig.code(case), **signed_in(ANN))).status_code == 200
    assert (await case.poll())["responded_by"] == ANN
    other = await rig.open()
    bob = {"name": "Bob", "email": "bob@example.com"}
    assert (await say(other, await rig.code(other), **signed_in(bob))).status_code == 200
    assert (await other.poll())["responded_by"] == {"email": MAIL}


@on_sqlite
async def test_a_button_does_not_answer_such_a_case(rig: Rig) -> None:
    case = await rig.open(inline_actions=["approve"])
    refused = await case.press("approve")
    assert (refused.status_code, refused.json()["error"]) == (403, "verification_required")
    assert (await case.poll())["status"] == "pending"


@on_sqlite
async def test_json_is_told_why(rig: Rig) -> None:
    case = await rig.open()
    missing, strange = (
        await say(case, None),
        await case.http.post(
            f"/review/{case.case_id}/respond?token={case.token}", json={"action": "approve", "email_code": 7}
        ),
    )
    assert (missing.status_code, missing.json()["error"]) == (403, "verification_required")
    assert strange.status_code == 422


@on_sqlite
async def test_an_answer_that_does_not_fit_uses_no_code_up(rig: Rig) -> None:
    case = await rig.open("selection", context={"items": [{"id": "a", "title": "A"}]})
    code = await rig.code(case)
    faulty = await case.form(action="select", email_code=code)
    assert faulty.status_code == 422
    assert (await case.form(action="select", selected="0", email_code=code)).status_code == 303


FORM = {
    "form": {
        "steps": [
            {"title": "One", "fields": [{"key": "name", "label": "Name", "type": "text", "required": True}]},
            {
                "title": "Two",
                "fields": [
                    {"key": "pin", "label": "Pin", "type": "text", "required": True, "sensitive": True}
                ],
            },
        ]
    }
}


@on_sqlite
async def test_what_is_filled_in_stays_while_a_code_is_sent(rig: Rig) -> None:
    case = await rig.open("input", context=FORM)
    first = await case.form(step="1", shown="name", intent="next", **{"f.name": "Ada"})
    assert first.status_code == 200
    sent = await case.form(step="2", shown="pin", intent="answer", **{"f.pin": "s3cret"})
    assert sent.status_code == 200
    assert 'name="send_code"' in sent.text
    assert "s3cret" not in sent.text
    done = await case.form(
        step="2", shown="pin", intent="answer", email_code=rig.box.codes[0], **{"f.pin": ""}
    )
    assert done.status_code == 303, done.text
    assert (await case.poll())["result"]["data"] == {"name": "Ada", "pin": "s3cret"}


@on_sqlite
@pytest.mark.parametrize(
    ("type", "fields", "kept"),
    [
        (
            "confirmation",
            {"action": "confirm", "confirmed_items": "1", "note": "so be it"},
            ['name="confirmed_items" value="1"', "so be it"],
        ),
        ("selection", {"selected": "1"}, ['name="selected" value="1"']),
        (
            "escalation",
            {"action": "retry", "modified_params": '{"n": 2}', "reason": "because"},
            ["because", "&#34;n&#34;"],
        ),
        ("input", {"response": "My answer."}, ["My answer."]),
    ],
)
async def test_every_type_asks_for_the_code_and_keeps_what_is_there(
    rig: Rig, type: str, fields: dict[str, str], kept: list[str]
) -> None:
    items = [{"id": "a", "title": "A"}, {"id": "b", "title": "B"}]
    context = {"confirmation": {"items_to_confirm": items}, "selection": {"items": items}}.get(type, {})
    case = await rig.open(type, context=context)
    sent = await case.form(**fields)
    assert sent.status_code == 200
    assert 'autocomplete="one-time-code"' in sent.text
    assert [text for text in kept if text not in sent.text] == []


@on_sqlite
async def test_a_mail_that_cannot_be_sent_is_told_of(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "askfirst")
    rig.box.refuse = True
    case = await rig.open()
    failed = await case.form(send_code="0")
    assert failed.status_code == 503
    assert "The code could not be sent." in failed.text
    assert "a mail could not be sent through 127.0.0.1: SMTPDataError" in caplog.text


@on_sqlite
async def test_a_case_that_has_ended_sends_none(rig: Rig) -> None:
    case = await rig.open(timeout="1h")
    await case.cancel()
    assert (await case.form(send_code="0")).status_code == 409
    late = await rig.open(timeout="1h")
    rig.clock.turn(3600)
    assert (await late.form(send_code="0")).status_code == 410
    assert rig.box.mails == []


@on_sqlite
async def test_without_a_mail_server_no_such_case_is_opened(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent()
        body = {"type": "approval", "prompt": "Well?", "verify_email": MAIL}
        refused = await agent.post("/v1/reviews", body)
        assert refused.status_code == 422
        assert "verify_email" in refused.json()["faults"]


@on_sqlite
async def test_a_mail_server_that_is_gone_opens_no_door(database: Database, rig: Rig) -> None:
    case = await rig.open()
    async with database.checkpointer() as again, serving(again) as served:
        path = f"/review/{case.case_id}/respond?token={case.token}"
        refused = await served.http.post(path, json={"action": "approve", "email_code": "123456"})
        assert (refused.status_code, refused.json()["error"]) == (403, "verification_failed")


@on_sqlite
@pytest.mark.parametrize(
    "given",
    [
        "",
        "ann",
        "ann@",
        "a b@example.com",
        "ann@example.com\r\nBcc: eve@example.com",
        [],
        ["x"],
        [MAIL] * 21,
        7,
    ],
    ids=repr,
)
async def test_what_is_no_address_is_refused(rig: Rig, given: Any) -> None:
    agent = await rig.served.agent()
    refused = await agent.post("/v1/reviews", {"type": "approval", "prompt": "Well?", "verify_email": given})
    assert refused.status_code == 422


def _bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_the_code_is_nowhere_in_clear(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(email_codes.secrets, "randbelow", lambda most: 90_210)
    code = "090210"
    async with mailbox() as box, serving(f"sqlite:///{tmp_path}/c.db", smtp_url=box.url) as served:
        agent = await served.agent()
        case = await agent.open("approval", verify_email=MAIL)
        await case.form(send_code="0")
        assert box.codes == [code]
        assert (await case.form(action="approve", email_code=code)).status_code == 303
        polled = json.dumps(await case.poll())
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("mail.")]
    stored = _bytes_in(tmp_path)
    assert case.case_id.encode() in stored
    assert code.encode() not in stored
    assert [line for line in ours if code in line or "pass/word" in line] == []
    assert code not in polled


@on_sqlite
async def test_codes_are_compared_in_constant_time_and_all_of_them(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    constant_time = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append(other)
        return constant_time(one, other)

    case = await rig.open()
    first, _ = await rig.code(case), await rig.code(case)
    monkeypatch.setattr(email_codes.hmac, "compare_digest", compare)
    assert (await say(case, first)).status_code == 200
    kept = [row[code_table.c.keys().index("code_hash")] for row in await rig.store.engine.read(_codes)]
    assert len(kept) == 2
    assert set(kept) <= set(compared)


@on_sqlite
async def test_a_purged_case_takes_its_codes_with_it(rig: Rig) -> None:
    case = await rig.open()
    assert (await say(case, await rig.code(case))).status_code == 200
    rig.clock.turn(31 * 86_400)
    assert await rig.served.service.cases.purge() == 1
    assert await rig.store.engine.read(_codes) == []


@pytest.mark.parametrize(
    "url",
    ["", "host", "http://user:hunter2@host", "smtp://", "smtp://user:hunter2@host", "smtp://host:x?from=a@b"],
)
def test_a_mail_server_is_named_properly(url: str) -> None:
    with pytest.raises(ServiceError, match="smtp_url is like") as raised:
        Mailer(url)
    assert "hunter2" not in str(raised.value)


def test_the_mail_server_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_SMTP_URL", "nonsense")
    with pytest.raises(ServiceError, match="smtp_url"):
        create_app("sqlite://", base_url="https://a.example")


@pytest.mark.parametrize(
    ("url", "in_clear", "tls"),
    [
        ("smtp://a%40b:c@mail.example", False, {"use_tls": False, "start_tls": True, "port": 587}),
        ("smtp://a%40b:c@mail.example", True, {"use_tls": False, "start_tls": None}),
        ("smtp://127.0.0.1:25?from=a@b", False, {"use_tls": False, "start_tls": None, "port": 25}),
        ("smtps://mail.example?from=a@b", False, {"use_tls": True, "start_tls": False, "port": 465}),
        ("smtps://mail.example?from=a@b", True, {"use_tls": True, "start_tls": False}),
    ],
)
async def test_mail_goes_over_an_encrypted_connection(
    url: str, in_clear: bool, tls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    async def send(mail: Any, **options: Any) -> tuple[dict[str, Any], str]:
        seen.update(options)
        return {}, "OK"

    monkeypatch.setattr("aiosmtplib.send", send)
    mailer = Mailer(url, in_clear=in_clear)
    mail = mailer.compose_mail(MAIL, "Hello", "Hi.", domain="a.example")
    assert mail is not None
    assert await mailer.send(mail, domain="a.example")
    assert seen.items() >= tls.items()


async def test_a_server_that_cannot_encrypt_gets_no_mail_and_no_password() -> None:
    async with mailbox() as box:
        mailer = Mailer(box.url)
        mailer._in_clear = False  # pyright: ignore[reportPrivateUsage]
        mail = mailer.compose_mail(MAIL, "Hello", "Hi.", domain="a.example")
        assert mail is not None
        assert not await mailer.send(mail, domain="a.example")
        assert box.mails == []
        assert box.logins == []


def test_addresses_are_masked() -> None:
    assert masked_address("ann@example.com") == "a***@example.com"
    assert masked_address("a@b") == "a***@b"
    assert re.fullmatch(r".\*\*\*@x\.y", masked_address("longer.name+tag@x.y"))
