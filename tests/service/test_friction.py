"""High risk has a second step that the server demands; critical a reason and a fresh code, too."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx2
import pytest
from kit.logins import ANN, by_header, signed_in
from kit.running_service import BROWSER, Served, serving, until
from kit.smtp_mailbox import Mailbox, mailbox
from kit.stores import SHARED, asked, effect, said

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.display import Display
from askfirst.messages import call_digest
from askfirst.requests import ApproveRequest, EscalateRequest, HitlRequest
from askfirst.service.adoption import case_id_of
from askfirst.service.case import Case
from askfirst.service.embedding import review_link
from askfirst.service.page_data import begun_of
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
FORM = {**BROWSER, "Sec-Fetch-Site": "same-origin", "Origin": "null"}
CASE = case_id_of("t", "call-1", 1)


async def page_of(served: Served, store: SqlCheckpointer, args: dict[str, Any], **words: Any) -> str:
    """The address of the page for a call that its tool's author shows so."""
    payload = ApproveRequest(
        tool_name="send",
        tool_call_id="call-1",
        args=args,
        digest=call_digest("send", args),
        display=Display(**words).shown(args),
    )
    now = served.service.cases.now() / 1000
    await asked(store, "t", HitlRequest(question_id="call-1", payload=payload, created_at=now))

    async def known() -> bool:
        return await served.service.cases.engine.read(partial(case_store.shown, CASE)) is not None

    await until(known)
    return await review_link(served.app, CASE)


async def post(served: Served, page: str, fields: dict[str, str], **headers: str) -> httpx2.Response:
    return await served.http.post(page.replace("?", "/respond?"), data=fields, headers={**FORM, **headers})


def fields_of(page: httpx2.Response) -> dict[str, str]:
    """The hidden fields of the page's form."""
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', page.text)
    return {name: html.unescape(value) for name, value in found}


async def case_now(served: Served) -> Case:
    return await served.service.cases.get(CASE)


@each_store
async def test_high_risk_takes_two_posts(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="high")
        first = await post(served, page, {"action": "approve"})
        assert first.status_code == 200
        assert not (await case_now(served)).is_final
        second = fields_of(first)
        assert {"confirmed", "nonce", "action"} <= second.keys()
        done = await post(served, page, second)
        assert done.status_code == 303
        assert ((await case_now(served)).result or {})["action"] == "approve"


@pytest.mark.parametrize("words", [{}, {"risk": "low"}])
@on_sqlite
async def test_low_and_normal_risk_take_one(checkpointer: SqlCheckpointer, words: dict[str, Any]) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, **words)
        assert (await post(served, page, {"action": "approve"})).status_code == 303
        assert (await case_now(served)).is_final


@on_sqlite
async def test_rejecting_takes_one_whatever_the_risk(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="critical")
        assert (await post(served, page, {"action": "reject"})).status_code == 303
        assert ((await case_now(served)).result or {})["action"] == "reject"


ITEMS = [{"id": f"i{n}", "title": f"Account <{n}>"} for n in range(60)]


@pytest.mark.parametrize(
    ("label", "chosen", "button", "heading"),
    [
        ("Delete {n}", "0 3", "Delete 2", "Confirm 2 of 60?"),
        ("Delete {n}", " ".join(map(str, range(60))), "Delete 60", "Confirm all 60?"),
        (None, "0 3", "Confirm 2 of 60", "Confirm 2 of 60?"),
        ("Delete", "0 3", "Delete", "Confirm 2 of 60?"),
    ],
)
@on_sqlite
async def test_the_second_step_says_which_items_and_how_many(
    checkpointer: SqlCheckpointer, label: str | None, chosen: str, button: str, heading: str
) -> None:
    async with serving(checkpointer) as served:
        given: dict[str, Any] = {"context": {"items_to_confirm": ITEMS}, "risk": "high"}
        case = await (await served.agent()).open("confirmation", **given, approve_label=label)
        page = await case.form(action="confirm", confirmed_items=chosen.split())
        assert f'<h1 tabindex="-1" autofocus>{heading}</h1>' in page.text
        assert re.search(rf"id=\"go\"[^>]*>{re.escape(button)}</button>", page.text)
        places = chosen.split()
        for place in (0, 3, 4, 49, 50):
            is_there = f">Account &lt;{place}&gt;</li>" in page.text
            assert is_there == (str(place) in places and places.index(str(place)) < 50), place
        assert ("Items 51 to 60 are not shown here" in page.text) == (len(places) == 60)


@on_sqlite
async def test_the_second_step_of_a_selection_names_what_was_chosen(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        given: dict[str, Any] = {"context": {"items": ITEMS[:3], "multiple": False}, "risk": "high"}
        case = await (await served.agent()).open("selection", **given, approve_label="Close {title}")
        page = await case.form(action="select", selected="1")
        assert re.search(r'id="go"[^>]*>Close Account &lt;1&gt;</button>', page.text)
        assert ">Account &lt;1&gt;</li>" in page.text
        assert "Account &lt;2&gt;" not in page.text


@on_sqlite
async def test_a_confirmation_of_something_else_does_not_count(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="high")
        second = fields_of(await post(served, page, {"action": "approve"}))
        edited = {**second, "action": "edit", "intent": "answer", "edits": '{"n": 2}'}
        again = await post(served, page, edited)
        assert again.status_code == 200
        assert not (await case_now(served)).is_final
        changed = fields_of(again)
        assert changed["confirmed"] != second["confirmed"]
        assert (await post(served, page, {**changed, "confirmed": "yes"})).status_code == 200
        assert (await post(served, page, changed)).status_code == 303
        assert ((await case_now(served)).result or {})["data"]["edits"] == {"n": 2}


@on_sqlite
async def test_a_risk_pattern_asks_for_the_second_step(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"command": "rm -rf /srv"})
        assert (await post(served, page, {"action": "approve"})).status_code == 200
        assert not (await case_now(served)).is_final


@on_sqlite
async def test_an_edit_to_something_risky_asks_for_it_too(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"command": "ls"})
        sent = {"action": "edit", "intent": "answer", "edits": '{"command": "rm -rf /srv"}'}
        assert (await post(served, page, sent)).status_code == 200
        assert not (await case_now(served)).is_final


@on_sqlite
async def test_what_was_not_opened_has_to_be_ticked_at_high_risk(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        text = "\n".join(map(str, range(1000)))
        page = await page_of(served, checkpointer, {"text": text}, risk="high")
        second = fields_of(await post(served, page, {"action": "approve"}))
        refused = await post(served, page, second)
        assert refused.status_code == 422
        assert not (await case_now(served)).is_final
        assert (await post(served, page, {**second, "unread": "accepted"})).status_code == 303


@on_sqlite
async def test_lines_that_match_a_risk_pattern_have_to_be_looked_at(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"command": "ls\nrm -rf /srv"})
        asked = await post(served, page, {"action": "approve"})
        assert "I have looked at the marked line" in asked.text
        second = fields_of(asked)
        assert "looked" not in second
        refused = await post(served, page, second)
        assert refused.status_code == 422
        assert "Look at the lines that match a risk pattern" in refused.text
        in_chinese = await post(served, f"{page}&lang=zh-Hans", second)
        assert "请查看符合风险规则的各行" in in_chinese.text
        assert not (await case_now(served)).is_final
        assert (await post(served, page, {**second, "looked": "accepted"})).status_code == 303


@on_sqlite
async def test_the_second_step_shows_the_lines_that_have_to_be_looked_at(
    checkpointer: SqlCheckpointer,
) -> None:
    """Also those that an edit brings in, which stand on no page before; a secret is not shown."""
    async with serving(checkpointer) as served:
        args = {"command": "ls", "key": "rm -rf /secret"}
        page = await page_of(served, checkpointer, args, formats={"key": "secret"})
        first = await post(served, page, {"action": "approve"})
        assert "/secret" not in first.text
        lines = "\n".join(f"rm -rf /srv/{place}" for place in range(7))
        changed = {"arg.0": lines, "intent": "preview", "action": "edit"}
        check = await post(served, page, changed)
        assert "match a risk pattern" in check.text
        assert "Approve with these changes…" in check.text
        second = await post(served, page, fields_of(check) | {"intent": "answer"})
        assert second.text.count('data-why="deletes files without asking">rm -rf /srv/') == 5
        assert "And 3 more, in the request" in second.text


@on_sqlite
async def test_an_edit_that_takes_the_risky_line_out_needs_no_look(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"command": "rm -rf /srv"}, risk="high")
        sent = {"action": "edit", "intent": "answer", "edits": '{"command": "ls"}'}
        second = await post(served, page, sent)
        assert 'name="looked"' not in second.text
        assert (await post(served, page, fields_of(second))).status_code == 303


# Critical: a reason and a fresh code.


@on_sqlite
async def test_critical_takes_a_reason_and_a_fresh_code(checkpointer: SqlCheckpointer) -> None:
    async with mailbox() as box, serving(checkpointer, smtp_url=box.url, identify=by_header) as served:
        ann = signed_in(ANN)
        page = await page_of(served, checkpointer, {"n": 1}, risk="critical")
        second = fields_of(await post(served, page, {"action": "approve"}, **ann))
        assert second["confirmed"]
        short = await post(served, page, {**second, "feedback": "fine"}, **ann)
        assert short.status_code == 422
        reasoned = {**second, "feedback": "checked with the bank"}
        sent = await post(served, page, reasoned, **ann)
        assert sent.status_code == 200
        assert "Show that it is you" in sent.text
        assert not (await case_now(served)).is_final
        assert fields_of(sent)["confirmed"] == second["confirmed"]
        no_code = await post(served, page, {**reasoned, "with_code": "1"}, **ann)
        assert no_code.status_code == 403
        assert not (await case_now(served)).is_final
        code = await _code(box)
        done = await post(served, page, {**reasoned, "email_code": code}, **ann)
        assert done.status_code == 303
        case = await case_now(served)
        assert (case.responded_by or {})["email"] == ANN["email"]
        assert (case.result or {})["data"]["feedback"] == "checked with the bank"


@on_sqlite
async def test_the_codes_mail_writes_changes_as_the_page_does(checkpointer: SqlCheckpointer) -> None:
    async with mailbox() as box, serving(checkpointer, smtp_url=box.url, identify=by_header) as served:
        ann = signed_in(ANN)
        words: dict[str, Any] = {"sentence": "Pay {cents:money:EUR}", "labels": {"cents": "Amount"}}
        page = await page_of(served, checkpointer, {"cents": 4900}, risk="critical", **words)
        edit = {
            "intent": "answer",
            "action": "edit",
            "changed": '{"cents": 900000}',
            "feedback": "as they asked",
        }
        second = fields_of(await post(served, page, edit, **ann))
        sent = await post(served, page, {**edit, "confirmed": second["confirmed"]}, **ann)
        assert "Show that it is you" in sent.text
        await _code(box)
        text = box.mails[-1].get_content()
        assert "Pay 49.00 EUR" in text
        assert "    Amount (cents): 9,000.00 EUR (900000)" in text.splitlines()


async def _code(box: Mailbox) -> str:
    async def arrived() -> list[str]:
        return box.codes

    return (await until(arrived))[-1]


@pytest.mark.parametrize(
    ("has_mail", "sentence", "in_chinese"),
    [
        (False, "this service cannot send e-mail", "本服务无法发送邮件"),
        (True, "this service does not know your address", "本服务不知道您的邮箱地址"),
    ],
)
@on_sqlite
async def test_where_no_code_can_be_sent_the_page_says_so_before_anything_is_pressed(
    checkpointer: SqlCheckpointer,
    has_mail: bool,
    sentence: str,
    in_chinese: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mailbox() as box, serving(checkpointer, smtp_url=box.url if has_mail else None) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="critical")
        shown = (await served.http.get(page, headers=BROWSER)).text
        assert sentence in shown
        assert 'aria-disabled="true"' in button_of(shown, 'id="go"')
        assert in_chinese in (await served.http.get(f"{page}&lang=zh-Hans", headers=BROWSER)).text
        refused = await post(served, page, {"action": "approve", "note": "checked with the bank"})
        assert refused.status_code == 403
        assert refused.text.count(sentence) == 1
        assert 'name="email_code"' not in refused.text
        assert "checked with the bank" in refused.text
        assert "no code can be sent" in caplog.text
        body = {"action": "approve", "data": {"feedback": "checked with the bank"}}
        assert (await served.http.post(page.replace("?", "/respond?"), json=body)).status_code == 403
        assert not (await case_now(served)).is_final
        assert not box.codes
        assert (await post(served, page, {"action": "reject"})).status_code == 303


@on_sqlite
async def test_who_can_get_a_code_reads_nothing_of_it(checkpointer: SqlCheckpointer) -> None:
    async with mailbox() as box, serving(checkpointer, smtp_url=box.url, identify=by_header) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="critical")
        shown = (await served.http.get(page, headers={**BROWSER, **signed_in(ANN)})).text
        assert "aria-disabled" not in button_of(shown, 'id="go"')
        assert "You can only reject" not in shown
        again = await served.http.get(
            page, headers={**signed_in(ANN), "Sec-Fetch-Mode": "cors"}
        )  # as a script does
        assert "You can only reject" not in again.text


@on_sqlite
async def test_critical_as_json_needs_its_reason(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="critical")
        refused = await served.http.post(page.replace("?", "/respond?"), json={"action": "approve"})
        assert refused.status_code == 422
        assert "data.feedback" in refused.json()["faults"]
        rejected = await served.http.post(page.replace("?", "/respond?"), json={"action": "reject"})
        assert rejected.status_code == 200


@pytest.mark.parametrize(("risk", "status"), [("normal", 200), ("high", 403), ("critical", 403)])
@on_sqlite
async def test_a_messengers_button_lets_nothing_of_high_risk_happen(
    checkpointer: SqlCheckpointer, risk: str, status: int
) -> None:
    async with serving(checkpointer, inline=True) as served:
        agent = await served.agent()
        case = await agent.open(risk=risk)
        assert (await case.press("approve")).status_code == status
        other = await agent.open(risk=risk)
        assert (await other.press("reject")).status_code == 200


# How a service says that its case is shown.


@on_sqlite
async def test_a_service_says_how_its_case_is_shown(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent()
        case = await agent.open(
            context={"cents": 4900},
            labels={"cents": "Amount"},
            formats={"cents": "money:EUR"},
            consequences=["money"],
            approve_label="Pay 49.00 EUR",
            reject_label="Keep it",
            links=[{"title": "Order", "url": "https://shop.example/A-1042"}],
        )
        shown = (await served.service.cases.get(case.case_id)).shown
        assert shown is not None
        assert (shown["approve"], shown["reject"]) == ("Pay 49.00 EUR", "Keep it")


@pytest.mark.parametrize(("action", "is_told"), [("approve", True), ("reject", False)])
@on_sqlite
async def test_a_service_says_what_comes_first_and_how_it_is_undone(
    checkpointer: SqlCheckpointer, action: str, is_told: bool
) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent("billing")
        case = await agent.open(
            context={"note": "n", "order": "A-1042", "cents": 1},
            important=["cents", "order"],
            undo="Void it <b>within</b> an hour.",
        )
        page = (await case.visit()).text
        names = re.findall(r'<span class="label">(\w+)</span>', page)
        assert names == ["cents", "order", "note"]
        assert "Void it" not in page
        await case.form(action=action)
        ended = (await case.visit()).text
        assert ("Void it &lt;b&gt;within&lt;/b&gt; an hour." in ended) == is_told
        assert ("How to undo it" in ended) == is_told


def button_of(text: str, mark: str) -> str:
    """The first button of a page with this attribute."""
    return next(it for it in re.findall(r"<button[^>]*>[^<]*", text) if mark in it)


@pytest.mark.parametrize(
    ("type_", "acts", "not_"), [("approval", "Approve", "Reject"), ("confirmation", "Yes, go on", "No")]
)
@on_sqlite
async def test_below_a_services_label_the_page_says_what_the_button_does(
    checkpointer: SqlCheckpointer, type_: str, acts: str, not_: str
) -> None:
    """Labels that say the opposite of what the buttons do would turn the decision round."""
    async with serving(checkpointer) as served:
        agent = await served.agent()
        swapped = {"approve_label": "Reject", "reject_label": "Approve"}
        case = await agent.open(type_, risk="high", **swapped)
        page = (await case.visit()).text
        left = 'popovertarget="no"' if type_ == "approval" else 'value="cancel"'
        assert button_of(page, 'id="go"').endswith(f'data-means="{acts}">Reject…')
        assert button_of(page, left).endswith(f'data-means="{not_}">Approve')
        second = (await case.form(action="approve" if type_ == "approval" else "confirm")).text
        assert f'<h1 tabindex="-1" autofocus>{acts}?</h1>' in second
        assert button_of(second, 'id="go"').endswith(f'data-means="{acts}">Reject')
        plain = (await (await agent.open(type_)).visit()).text
        assert "data-means" not in plain


@on_sqlite
async def test_what_a_tools_author_writes_on_a_button_stands_alone(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, approve="Send {n}")
        shown = (await served.http.get(page, headers=BROWSER)).text
        assert button_of(shown, 'id="go"').endswith(">Send 1")
        assert "data-means" not in shown


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"labels": {"x": "X"}}, "labels"),
        ({"important": ["x"]}, "important"),
        ({"undo": "x" * 501}, "undo"),
        ({"formats": {"x": "number"}}, "formats"),
        ({"context": {"x": 1}, "formats": {"x": "moneys"}}, "formats"),
        ({"risk": "huge"}, "risk"),
        ({"consequences": ["doom"]}, "consequences"),
        ({"approve_label": "x" * 25}, "approve_label"),
        ({"links": [{"title": "a", "url": "http://a.example"}]}, "links"),
        ({"links": [{"title": "a", "url": "javascript:alert(1)"}]}, "links"),
    ],
)
@on_sqlite
async def test_what_cannot_be_shown_is_refused(
    checkpointer: SqlCheckpointer, fields: dict[str, Any], fault: str
) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent()
        refused = await agent.post("/v1/reviews", {"type": "approval", "prompt": "p", **fields})
        assert refused.status_code == 422
        assert any(name.startswith(fault) for name in refused.json()["faults"]), refused.text


@pytest.mark.parametrize(
    ("type_", "context", "action"),
    [
        ("selection", {"items": [{"id": "a", "title": "A"}]}, "select"),
        (
            "input",
            {"form": {"fields": [{"key": "n", "label": "N", "type": "text", "required": True}]}},
            "submit",
        ),
    ],
)
@on_sqlite
async def test_none_of_these_where_the_caller_allows_it(
    checkpointer: SqlCheckpointer, type_: str, context: dict[str, Any], action: str
) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent()
        strict, open_, silent = (
            await agent.open(type_, context=context, decline=False),
            await agent.open(type_, context=context, decline=True),
            await agent.open(type_, context=context),
        )
        assert (await strict.form(decline="1")).status_code == 422
        assert (await open_.form(decline="1", note="wrong list")).status_code == 303
        polled = await open_.poll()
        assert polled["result"] == {"action": action, "data": {"declined": True, "note": "wrong list"}}
        assert (await silent.form(decline="1", decline_reason="not mine")).status_code == 303
        polled = await silent.poll()
        assert (polled["status"], polled["reason"]) == (
            "cancelled",
            "the person cannot answer this: not mine",
        )


# A call in doubt: to run it again may do it twice.


async def page_in_doubt(served: Served, store: SqlCheckpointer) -> str:
    """The page of a transfer that was begun a minute ago and may have gone out."""
    details = {"tool_name": "send", "tool_call_id": "call-1", "args": {"n": 1}, "attempt": 1}
    payload = EscalateRequest(
        prompt="It is not known how this ended.",
        choices=["retry", "skip", "abort"],
        details=details,
        display={"idempotency_key": "5f0c91aa"},
    )
    now = served.service.cases.now() / 1000
    await asked(store, "t", HitlRequest(question_id="call-1", payload=payload, created_at=now))
    thread = await store.load("t")
    assert thread is not None
    await store.commit("t", said(started=[effect()]), fence=thread.fence, acquire=True)

    async def known() -> bool:
        return await served.service.cases.engine.read(partial(case_store.shown, CASE)) is not None

    await until(known)
    return await review_link(served.app, CASE)


@on_sqlite
async def test_running_a_call_in_doubt_again_is_asked_once_more(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_in_doubt(served, checkpointer)
        again = await post(served, page, {"decide": "1", "action": "retry", "reason": "Not in the bank."})
        assert again.status_code == 200
        assert not (await case_now(served)).is_final
        for said_there in (
            "Run it again?",
            "Running it again may do it twice",
            "Not in the bank.",
            "Run it again</b",
        ):
            assert said_there in again.text
        assert (await post(served, page, fields_of(again))).status_code == 303
        assert (await case_now(served)).result == {"action": "retry", "data": {"reason": "Not in the bank."}}


@pytest.mark.parametrize("action", ["skip", "abort"])
@on_sqlite
async def test_leaving_a_call_in_doubt_alone_takes_one_post(
    checkpointer: SqlCheckpointer, action: str
) -> None:
    async with serving(checkpointer) as served:
        page = await page_in_doubt(served, checkpointer)
        assert (await post(served, page, {"decide": "1", "action": action})).status_code == 303
        assert (await case_now(served)).result == {"action": action, "data": {}}


@on_sqlite
async def test_a_call_in_doubt_tells_when_it_began_and_under_which_key(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_in_doubt(served, checkpointer)
        html = (await served.http.get(page, headers=BROWSER)).text
        begun_at = (await begun_of(served.service.cases.engine, await case_now(served))) or 0
    card = html[html.index('id="act"') :].partition("</section>")[0]
    time = datetime.fromtimestamp(begun_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert f'<dt>Begun</dt><dd><time datetime="{time}">' in card
    assert "attempt 1" in card
    assert '<span class="code text">5f0c91aa</span>' in card
    assert 'data-text="5f0c91aa"' in card
