"""Slack: the real client against a workspace that checks what the platform checks, and presses the buttons."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.running_service import serving
from kit.slack_rig import ADA_ACCOUNT, LINK, SlackRig, slack_rig
from kit.stores import SHARED, asked, databases

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.delivery import slack_presses
from askfirst.delivery.base import APPROVE_LABEL, OPEN_LABEL, Button, Ended, Notice, Press, PressAnswer
from askfirst.delivery.slack import SlackDelivery
from askfirst.delivery.slack_blocks import TEXT_LIMIT
from askfirst.delivery.slack_presses import SlackUser, confirmed_address
from askfirst.delivery.slack_socket import SocketMode
from askfirst.errors import DeliveryError, InvalidConfiguration
from askfirst.requests import ApproveRequest, AskRequest, HitlRequest, Option, Question
from askfirst.service.configuration import read_configuration
from askfirst.service.places import Decider, Place
from examples.local_slack import (
    ADA,
    APP_TOKEN,
    BEN,
    BOT_TOKEN,
    CHANNEL,
    GUEST,
    SIGNING_SECRET,
    STRANGER,
    TEAM,
    People,
    Refusal,
    local_slack,
)
from examples.local_slack.limits import elements_of

pytestmark = pytest.mark.anyio
database = databases(SHARED[0])
SECRET = "xYzReviewTokenThatNobodyMaySee"  # noqa: S105
SCHEMA = {
    "type": "object",
    "properties": {
        "order": {"type": "string"},
        "cents": {"type": "integer", "minimum": 1},
        "speed": {"type": "string", "enum": ["slow", "fast"]},
        "gift": {"type": "boolean"},
        "lines": {"type": "array"},
    },
    "required": ["order", "cents"],
}
ARGS = {"order": "A-1042", "cents": 4900, "speed": "slow", "gift": True, "lines": [1]}


def refund(args: dict[str, Any] | None = None, **display: Any) -> HitlRequest:
    payload = ApproveRequest(
        tool_name="refund",
        tool_call_id="call-1",
        args=ARGS if args is None else args,
        digest="d" * 64,
        args_schema=SCHEMA if args is None else None,
        display={"sentence": "Pay back 49.00 EUR for order A-1042", **display},
    )
    return HitlRequest(question_id="call-1", payload=payload, created_at=1_700_000_000.0)


async def answer_of(rig: SlackRig) -> Any:
    settled = await rig.checkpointer.request("t", "call-1")
    assert settled is not None
    return settled


async def test_a_message_has_it_all_and_a_press_decides_and_locks_it(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund(consequences=["The money is gone."], labels={"cents": "Amount"}))
        said = rig.text(sent)
        for part in (
            "Pay back 49.00 EUR for order A-1042",
            "order: A-1042",
            "Amount: 4900",
            "• The money is gone.",
        ):
            assert part in said
        assert rig.buttons(sent) == ["Approve", "Reject", "Edit…", OPEN_LABEL]
        async with rig.listening():
            pressed = await rig.press(sent, "Approve")
        assert pressed.acked
        assert rig.buttons(sent) == []
        assert rig.text(sent) == f"{said.split(chr(10) + 'It stays open')[0]}\nApproved by Ada Lovelace."
        settled = await answer_of(rig)
        assert (settled.status, settled.answered_by, settled.via) == (
            *("answered", "ada@example.com", "slack_block_action"),
        )
        assert rig.presses[0].account == ADA_ACCOUNT
        await rig.delivery.update(
            sent, Ended(rig.presses[0].case_id, "completed", "Approved by Ada.", outcome="It ran: paid")
        )
        assert rig.text(sent).endswith("Approved by Ada.\nIt ran: paid")


async def test_ten_presses_at_once_decide_once(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        before = rig.slack.messages[CHANNEL, str(sent.place["ts"])]
        async with rig.listening():
            done = await asyncio.gather(*(rig.press(sent, "Approve", message=before) for _ in range(10)))
        assert all(each.acked for each in done)
        assert (await answer_of(rig)).status == "answered"
        assert rig.text(sent).endswith("Approved by Ada Lovelace.")
        assert len(rig.told) == 9
        assert all("Approved by Ada" in each or "decided already" in each for each in rig.told)


async def test_twice_late_and_unknown_presses_change_nothing(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        before = rig.slack.messages[CHANNEL, str(sent.place["ts"])]
        async with rig.listening():
            await rig.press(sent, "Approve")
            await rig.press(sent, "Approve", message=before)
            assert rig.told == [slack_presses.CLOSED]
            for change in (
                {"value": "another-key", "action_id": "askfirst:0"},
                {"value": sent.place["key"], "action_id": "askfirst:99"},
            ):
                await rig.press(sent, "Approve", message=before, actions=[{"type": "button", **change}])
            assert rig.told[1:] == [slack_presses.UNKNOWN] * 2
            await rig.press(sent, OPEN_LABEL, message=before)  # a link is no decision
        assert len(rig.presses) == 1


@pytest.mark.parametrize("who", [STRANGER, GUEST])
async def test_a_stranger_or_a_guest_with_the_same_name_and_id_is_told_no_alone(
    checkpointer: SqlCheckpointer, who: Any
) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        before = rig.text(sent)
        async with rig.listening():
            await rig.press(sent, "Approve", by=who)
        assert (await answer_of(rig)).status == "pending"
        assert rig.text(sent) == before
        [told] = rig.slack.ephemerals
        assert told["user"] == who.id
        assert "may not" in told["text"]


async def test_a_message_in_another_channel_does_not_lend_its_buttons(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        async with rig.listening():
            rig.slack.channels["C0OTHER"] = {"id": "C0OTHER", "name": "other", "is_member": True}
            message = rig.slack.messages[CHANNEL, str(sent.place["ts"])]
            await rig.people.press("C0OTHER", str(sent.place["ts"]), "Approve", message=message)
        assert rig.told == [slack_presses.UNKNOWN]
        assert rig.presses == []


@pytest.mark.parametrize(("by", "decides"), [(ADA, True), (BEN, False), (GUEST, False), (STRANGER, False)])
async def test_an_address_counts_only_if_slack_has_confirmed_it_here(
    checkpointer: SqlCheckpointer, by: Any, decides: bool
) -> None:
    deciders = {"slack:ada@example.com": Decider("Ada")}
    async with slack_rig(checkpointer, deciders, asks_address=True) as rig:
        _, sent = await rig.ask("t", refund())
        async with rig.listening():
            await rig.press(sent, "Approve", by=by)
        assert (await answer_of(rig)).status == ("answered" if decides else "pending")


@pytest.mark.parametrize(
    "change",
    [
        {"is_email_confirmed": False},
        {"is_restricted": True},
        {"is_ultra_restricted": True},
        {"deleted": True},
        {"team_id": "T0OTHER"},
        {"id": "U0OTHER"},
        {"profile": {}},
    ],
)
def test_an_address_of_a_guest_or_unconfirmed_is_none(change: dict[str, Any]) -> None:
    user = SlackUser(TEAM, ADA.id)
    assert confirmed_address(ADA.info(), user) == "ada@example.com"
    assert confirmed_address({**ADA.info(), **change}, user) is None


async def test_a_rejection_may_say_why(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        async with rig.listening():
            await rig.press(sent, "Reject")
            [view_id] = rig.slack.views
            done = await rig.people.submit(view_id, {"field:0": "Not that much."})
            assert done.acked
        assert rig.slack.views == {}
        answer = (await answer_of(rig)).answer
        assert (answer.decision, answer.reason) == ("deny", "Not that much.")
        assert "Rejected by Ada Lovelace." in rig.text(sent)


async def test_arguments_are_edited_in_fields_of_their_schema(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        async with rig.listening():
            await rig.press(sent, "Edit…")
            [view_id] = rig.slack.views
            kinds = [block["element"]["type"] for block in rig.slack.views[view_id]["blocks"]]
            assert kinds == [
                *("plain_text_input", "number_input", "static_select", "radio_buttons", "plain_text_input"),
            ]
            bad = await rig.people.submit(view_id, {"field:1": "many", "field:4": "[1", "field:0": None})
            assert bad.payload["response_action"] == "errors"
            assert set(bad.payload["errors"]) == {"field:0", "field:1", "field:4"}
            done = await rig.people.submit(
                view_id, {"field:1": "100", "field:2": "fast", "field:3": "no", "field:4": "[2, 3]"}
            )
            assert done.payload == {}
        assert (await answer_of(rig)).answer.edited_args == {
            **ARGS,
            "cents": 100,
            "speed": "fast",
            "gift": False,
            "lines": [2, 3],
        }


async def test_edited_arguments_have_to_fit_the_schema(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        async with rig.listening():
            await rig.press(sent, "Edit…")
            [view_id] = rig.slack.views
            done = await rig.people.submit(view_id, {"field:1": "0"})
            assert done.payload["response_action"] == "update"
        assert (await answer_of(rig)).status == "pending"


async def test_a_stranger_may_open_a_form_and_not_send_it(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        async with rig.listening():
            await rig.press(sent, "Reject", by=STRANGER)
            [view_id] = rig.slack.views
            done = await rig.people.submit(view_id, {}, by=STRANGER)
            assert "may not" in json.dumps(done.payload)
        assert (await answer_of(rig)).status == "pending"


async def test_questions_are_answered_in_a_form(checkpointer: SqlCheckpointer) -> None:
    questions = [
        Question(key="why", prompt="Why?"),
        Question(
            key="how",
            prompt="How?",
            options=[Option(label="Slowly", value="slow"), Option(label="Fast", value="fast")],
        ),
    ]
    request = HitlRequest(
        question_id="call-1", payload=AskRequest(questions=questions), created_at=1_700_000_000.0
    )
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", request)
        assert rig.buttons(sent) == ["Answer…", OPEN_LABEL]
        async with rig.listening():
            await rig.press(sent, "Answer…")
            [view_id] = rig.slack.views
            done = await rig.people.submit(view_id, {"field:0": "Because.", "field:1": "fast"})
            assert done.payload == {}, done.payload
        assert (await answer_of(rig)).status == "answered"


async def test_what_is_risky_is_asked_twice_and_what_is_critical_on_the_page(
    checkpointer: SqlCheckpointer,
) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund(risk="high"))
        shown = elements_of(rig.slack.messages[CHANNEL, str(sent.place["ts"])])
        [approve] = [each for each in shown if each["text"]["text"] == "Approve"]
        assert approve["confirm"]["text"]["text"] == "Pay back 49.00 EUR for order A-1042"
        _, other = await rig.ask("t2", refund(risk="critical"))
        assert rig.buttons(other) == ["Reject", OPEN_LABEL]


async def test_what_does_not_fit_is_cut_visibly_and_cannot_be_approved_there(
    checkpointer: SqlCheckpointer,
) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask(
            "t", refund({"letter": "x" * 3_900, "more": "y" * 3_900, "last": "z" * 3_000})
        )
        assert len(rig.text(sent)) < TEXT_LIMIT + 1000
        assert "more characters on the page" in rig.text(sent)
        assert rig.buttons(sent) == ["Reject", APPROVE_LABEL]


async def test_a_form_that_is_late_is_asked_for_again(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        rig.slack.trigger_seconds = -1.0
        async with rig.listening():
            await rig.press(sent, "Reject")
        assert rig.told == [slack_presses.TOO_SLOW]
        assert rig.slack.views == {}


async def test_a_reminder_goes_into_the_thread(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        case, sent = await rig.ask("t", refund())
        notice = Notice("reminder", case.case_id, "Still open.", LINK, follows=sent)
        again = await rig.delivery.send(notice)
        third = await rig.delivery.send(Notice("warning", case.case_id, "Soon over.", LINK, follows=again))
        threads = [rig.slack.messages[CHANNEL, str(each.place["ts"])]["thread_ts"] for each in (again, third)]
        assert threads == [sent.place["ts"]] * 2


async def test_another_channel_by_name(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        rig.slack.channels["C0BOSS"] = {"id": "C0BOSS", "name": "boss", "is_member": True}
        sent = await rig.delivery.to("#boss").send(Notice("review", "case_1", "?", LINK))
        assert sent.place["channel"] == "C0BOSS"
        with pytest.raises(DeliveryError, match="a channel must be an id"):
            rig.delivery.to("no channel")


# Signed HTTP requests.


@pytest.fixture
async def signed(checkpointer: SqlCheckpointer) -> Any:
    import uvicorn

    async with slack_rig(checkpointer, signing_secret=SIGNING_SECRET) as rig:
        config = uvicorn.Config(rig.delivery.request_app(), port=0, log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        async with asyncio.timeout(PATIENCE):
            while not server.started:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        rig.slack.request_url = f"http://127.0.0.1:{port}/"
        async with rig.listening():
            yield rig
        server.should_exit = True
        await task


async def test_a_signed_press_decides(signed: SlackRig) -> None:
    _, sent = await signed.ask("t", refund())
    assert (await signed.press(sent, "Approve")).acked
    assert (await answer_of(signed)).status == "answered"
    await signed.ask("t2", refund())


async def test_forged_old_and_changed_requests_are_refused_unread(signed: SlackRig) -> None:
    import aiohttp

    _, sent = await signed.ask("t", refund())
    payload = {
        "type": "block_actions",
        "user": {"id": ADA.id, "team_id": TEAM},
        "team": {"id": TEAM},
        "channel": {"id": CHANNEL},
        "container": {"message_ts": sent.place["ts"]},
        "trigger_id": "x",
        "actions": [{"action_id": "askfirst:0", "value": sent.place["key"]}],
    }
    body = b"payload=" + json.dumps(payload).encode()
    old = signed.slack.clock() - 301
    url = signed.slack.request_url
    assert url is not None
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with aiohttp.ClientSession() as http:
        for headers in (
            {},
            signed.slack.signed(body, secret="another"),  # noqa: S106
            signed.slack.signed(body, at=old),
            signed.slack.signed(body + b" "),
            {**signed.slack.signed(body), "X-Slack-Request-Timestamp": "1e9"},
            {**signed.slack.signed(body), "X-Slack-Signature": "v0=é"},
        ):
            async with http.post(url, data=body, headers={**form, **headers}) as said:
                assert said.status == 401
        async with http.get(url) as said:
            assert said.status == 405
        for content in (b"payload={", b"nothing=1", b"\xff"):
            async with http.post(url, data=content, headers={**form, **signed.slack.signed(content)}) as said:
                assert said.status == 400
        hello = json.dumps({"type": "url_verification", "challenge": "c"}).encode()
        json_headers = {"Content-Type": "application/json", **signed.slack.signed(hello)}
        async with http.post(url, data=hello, headers=json_headers) as said:
            assert await said.json() == {"challenge": "c"}
    assert signed.presses == []
    assert (await answer_of(signed)).status == "pending"


# Trouble.


@pytest.mark.parametrize(
    ("refusal", "permanent", "says"),
    [
        (Refusal("ratelimited", retry_after=7), False, "Slack's rate limit is reached"),
        (Refusal("internal_error"), False, "internal_error"),
        (Refusal("not_in_channel"), True, "invite it"),
        (Refusal("missing_scope"), True, "chat:write"),
        (Refusal("token_revoked"), True, "install the app again"),
    ],
)
async def test_refusals_say_what_to_do_and_whether_to_try_again(
    refusal: Refusal, permanent: bool, says: str
) -> None:
    async with local_slack() as slack:
        slack.refusals["chat.postMessage"] = [refusal]
        delivery = SlackDelivery(BOT_TOKEN, CHANNEL, base_url=slack.url)
        with pytest.raises(DeliveryError, match=says) as caught:
            await delivery.send(Notice("review", "case_1", "?", LINK))
        assert (caught.value.permanent, caught.value.retry_after) == (permanent, refusal.retry_after)


async def test_no_secret_is_in_errors_logs_or_reprs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    for wrong in ("", "xoxp-not-a-bot-1234", "xapp-1-2-abcdefgh"):
        with pytest.raises(DeliveryError, match="xoxb") as caught:
            SlackDelivery(wrong, CHANNEL)
        assert not wrong or wrong not in str(caught.value)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        gone = SlackDelivery(
            BOT_TOKEN,
            CHANNEL,
            app_token=APP_TOKEN,
            base_url=f"http://127.0.0.1:{nobody.getsockname()[1]}/api/",
        )
        with pytest.raises(DeliveryError) as lost:
            await gone.send(Notice("review", "case_1", "?", LINK))
        assert not lost.value.permanent
    async with local_slack() as slack:
        delivery = SlackDelivery(BOT_TOKEN, CHANNEL, app_token=APP_TOKEN, base_url=slack.url)
        await delivery.send(Notice("review", "case_1", "?", LINK))

        async def on_press(press: Press) -> PressAnswer:
            raise RuntimeError(SECRET)

        async with delivery.listening(on_press):
            await slack.until(lambda: slack.sockets)
        told = f"{caplog.text} {delivery!r} {lost.value!r} {vars(lost.value)}"
    for secret in (BOT_TOKEN, APP_TOKEN, SECRET, "ticket="):
        assert secret not in told


async def test_a_wrong_app_token_is_an_error_at_once() -> None:
    async with local_slack() as slack:
        other = APP_TOKEN.replace("notA", "isA")
        delivery = SlackDelivery(BOT_TOKEN, CHANNEL, app_token=other, base_url=slack.url)

        async def on_press(press: Press) -> PressAnswer:
            raise AssertionError

        with pytest.raises(DeliveryError, match="does not know this token"):
            async with delivery.listening(on_press):
                pass
        slack.has_socket_mode = False
        delivery = SlackDelivery(BOT_TOKEN, CHANNEL, app_token=APP_TOKEN, base_url=slack.url)
        with pytest.raises(DeliveryError, match="Socket Mode is switched off"):
            async with delivery.listening(on_press):
                pass


async def test_what_takes_longer_is_acknowledged_first_and_seen_through() -> None:
    begun, release, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(kind: str, payload: dict[str, Any]) -> None:
        begun.set()
        await release.wait()
        done.set()

    async with local_slack(ack_seconds=PATIENCE) as slack:
        async with SocketMode(APP_TOKEN, handle, base_url=slack.url, ack_seconds=0.01).connected():
            await slack.until(lambda: slack.sockets)
            delivered = await slack.deliver("interactive", {"type": "block_actions"})
            assert delivered.acked
            assert begun.is_set()
            assert not done.is_set()
            asyncio.get_running_loop().call_soon(release.set)
        assert done.is_set()


async def test_a_connection_that_was_cut_is_opened_again_and_events_come_again() -> None:
    heard: list[dict[str, Any]] = []

    async def handle(kind: str, payload: dict[str, Any]) -> None:
        heard.append(payload)

    async with local_slack(ack_seconds=PATIENCE) as slack:
        await slack.deliver("events_api", {"n": 1})  # nobody is there
        async with SocketMode(APP_TOKEN, handle, base_url=slack.url, ping_seconds=0.05).connected():
            await slack.until(lambda: slack.sockets)
            await slack.cut_connections()
            await slack.until(lambda: slack.connections >= 2 and slack.sockets)
            assert (await slack.deliver("interactive", {"n": 2})).acked
    assert {"n": 1} in heard
    assert {"n": 2} in heard


async def test_a_handler_that_fails_does_not_end_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)

    async def handle(kind: str, payload: dict[str, Any]) -> None:
        raise RuntimeError(SECRET)

    async with (
        local_slack(ack_seconds=PATIENCE) as slack,
        SocketMode(APP_TOKEN, handle, base_url=slack.url).connected(),
    ):
        await slack.until(lambda: slack.sockets)
        for _ in range(2):
            assert (await slack.deliver("interactive", {})).acked
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


async def test_without_a_way_to_hear_there_are_links_only() -> None:
    async with local_slack() as slack:
        delivery = SlackDelivery(BOT_TOKEN, CHANNEL, base_url=slack.url)
        assert not delivery.shows_buttons
        notice = Notice("review", "case_1", "?", LINK, (Button("approve", "Approve"),), whole=True)
        await delivery.send(notice)
        [message] = slack.in_channel(CHANNEL)
        [elements] = [block["elements"] for block in message["blocks"] if block["type"] == "actions"]
        assert [each.get("url") for each in elements] == [LINK]


# Within the service.


@pytest.mark.parametrize("way", [{"signing_secret": SIGNING_SECRET}, {"app_token": APP_TOKEN}])
async def test_a_service_hears_presses_and_tells_what_waits(
    checkpointer: SqlCheckpointer, way: dict[str, str]
) -> None:
    async with local_slack(ack_seconds=PATIENCE, trigger_seconds=PATIENCE) as slack:
        people = People(slack)
        delivery = SlackDelivery(BOT_TOKEN, CHANNEL, base_url=slack.url, **way)
        place = Place("slack", delivery, {ADA_ACCOUNT: Decider("Ada")})
        await asked(checkpointer, "t", refund())
        async with serving(checkpointer, deliver=place, name="Desk") as served:
            if "signing_secret" in way:
                slack.request_url = f"{served.url}/messengers/slack"
            else:
                await slack.until(lambda: slack.sockets, PATIENCE)
            await slack.until(lambda: slack.in_channel(CHANNEL), PATIENCE)
            [message] = slack.in_channel(CHANNEL)
            told = await people.command("pending", channel=CHANNEL)
            assert told.payload["text"] == "• Pay back 49.00 EUR for order A-1042"
            assert (
                "not on the list of people"
                in (await people.command("", channel=CHANNEL, by=BEN)).payload["text"]
            )
            assert (await people.press(CHANNEL, message["ts"], "Approve")).acked
            await slack.until(lambda: "Approved by Ada." in slack.text(CHANNEL, message["ts"]), PATIENCE)
        settled = await checkpointer.request("t", "call-1")
        assert settled is not None
        assert settled.status == "answered"


async def test_another_round_goes_into_the_thread_of_the_first(checkpointer: SqlCheckpointer) -> None:
    async with local_slack(ack_seconds=PATIENCE, trigger_seconds=PATIENCE) as slack:
        delivery = SlackDelivery(BOT_TOKEN, CHANNEL, base_url=slack.url)
        async with serving(checkpointer, deliver=Place("slack", delivery), name="Desk") as served:
            caller = await served.agent()
            body = {"type": "approval", "prompt": "Publish it?", "notify": True}
            cases: list[str] = []
            for number in (1, 2, 3):
                more = {"previous_case_id": cases[-1]} if cases else {}
                said = await served.http.post("/v1/reviews", json=body | more, headers=caller.headers)
                assert said.status_code == 202, said.text
                cases.append(said.json()["hitl"]["case_id"])
                await slack.until(lambda number=number: len(slack.in_channel(CHANNEL)) == number, PATIENCE)
        first, *others = slack.in_channel(CHANNEL)
        assert "thread_ts" not in first
        assert [each["thread_ts"] for each in others] == [first["ts"]] * 2


async def test_a_press_after_the_deadline_changes_nothing(checkpointer: SqlCheckpointer) -> None:
    async with slack_rig(checkpointer) as rig:
        _, sent = await rig.ask("t", refund())
        await rig.checkpointer.cancel("t", "call-1")
        async with rig.listening():
            await rig.press(sent, "Approve")
        assert len(rig.told) == 1
        assert (await answer_of(rig)).status == "cancelled"


def test_slack_is_configured_by_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "askfirst.toml"
    deciders = f'[delivery.slack.deciders]\n"{TEAM}:{ADA.id}" = "Ada <a@b.example>"\n'
    file.write_text(f'[delivery.slack]\nchannel = "{CHANNEL}"\n\n{deciders}')
    environ = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
    [place] = read_configuration(file, environ).places
    assert place.deciders == {ADA_ACCOUNT: Decider("Ada", "a@b.example")}
    assert place.has_buttons
    file.write_text(f'[delivery.slack]\nchannel = "{CHANNEL}"\nbot_token = "{BOT_TOKEN}"\n')
    with pytest.raises(InvalidConfiguration, match="line 3: bot_token is a secret") as caught:
        read_configuration(file, environ)
    assert BOT_TOKEN not in str(caught.value)
