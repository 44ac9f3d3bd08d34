"""A button that approves stands only where all of what is approved stands, and who is told is who was named."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.client_rig import rig, until
from kit.telegram_server import CHAT, TOKEN, USER, telegram_server

from askfirst.client import HitlClient, HitlClientSync
from askfirst.client.notify import labelled
from askfirst.client.offer import LONGEST, context_text
from askfirst.delivery import Button, Notice, TelegramDelivery, TerminalDelivery, delivery_named
from askfirst.delivery.registry import given_deliveries
from askfirst.errors import DeliveryError

pytestmark = pytest.mark.anyio
KIND = "approving unseen in a messenger"
LINK = "https://books.example/review/case_1?token=t"
BUTTONS = tuple(
    Button(action, action.capitalize()) for action in ("approve", "confirm", "retry", "skip", "reject")
)


def labels(buttons: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in buttons]


@pytest.mark.attack("M1", KIND)
@pytest.mark.parametrize(
    ("body", "facts", "whole", "complete"),
    [
        ("Pay the invoice?", {}, True, True),
        ("Pay the invoice?", {"context": "to: MALLORY"}, True, True),
        ("Pay the invoice?", {}, False, False),
        ("Pay the invoice?", {"context": "to: MALLORY"}, False, False),
        ("Pay the invoice?", {"context": "x" * 4_096}, True, False),
        ("y" * 5_000, {}, True, False),
        ("y" * 4_096, {}, True, False),
        ("😀" * 2_100, {}, True, False),
    ],
)
async def test_a_button_that_approves_stands_below_the_whole_of_it_only(
    body: str, facts: dict[str, str], whole: bool, complete: bool
) -> None:
    async with telegram_server() as telegram:
        delivery = TelegramDelivery(TOKEN, CHAT, base_url=telegram.url)
        sent = await delivery.send(Notice("review", "case_1", body, LINK, BUTTONS, facts=facts, whole=whole))
        message = int(sent.place["message"])
        decisions = ["Approve", "Confirm", "Retry", "Skip"] if complete else []
        page = "Open the page" if complete else "Approve on the page"
        assert labels(telegram.buttons(message)) == [*decisions, "Reject", page]
        if complete and facts:
            assert facts["context"] in telegram.messages[message]["text"]
        if not complete:  # what is not shown cannot be pressed either
            [reject, _] = telegram.buttons(message)
            data = reject["callback_data"].replace("reject", "approve")
            heard: list[str] = []

            async def on_press(press: Any) -> Any:
                heard.append(press.action)

            async with delivery.listening(on_press):
                await telegram.told(await telegram.press(message, "Reject", data=data))
            assert heard == []


@pytest.mark.attack("M1", KIND)
@pytest.mark.parametrize(
    ("fields", "approves", "says"),
    [
        ({}, True, ""),
        ({"context": {"to": "MALLORY-IBAN", "cents": 99_999_900}}, True, "to: MALLORY-IBAN\ncents: 99999900"),
        ({"context": {"letter": "z" * 5_000}}, False, ""),
        ({"message": "m" * 2_000, "context": {"letter": "z" * 3_000}}, False, ""),
    ],
)
async def test_the_client_says_what_is_approved_or_leaves_that_to_the_page(
    fields: dict[str, Any], approves: bool, says: str, tmp_path: Path
) -> None:
    async with telegram_server() as telegram:
        delivery = TelegramDelivery(TOKEN, CHAT, reviewers={USER["id"]}, base_url=telegram.url)
        async with rig(tmp_path, service={"inline": True}, also=lambda _: delivery) as there:
            waiting = there.ask(prompt="Pay the invoice?", inline_actions=["approve", "reject"], **fields)
            await until(lambda: telegram.messages)
            message = next(iter(telegram.messages))
            shown = [text for text in labels(telegram.buttons(message)) if text in ("Approve", "Reject")]
            assert shown == (["Approve", "Reject"] if approves else ["Reject"])
            assert says in telegram.messages[message]["text"]
            await telegram.press(message, "Reject")
            assert (await waiting).action == "reject"


def test_a_context_is_text_where_it_can_be_told_exactly() -> None:
    assert context_text(None) == context_text({}) == ""
    assert context_text({"a": "b", "n": 1.5, "x": None}) == "a: b\nn: 1.5\nx: null"
    assert context_text({"a": "1\nto: EVE", "b: c": "d: e", " ": ""}) == (
        'a: "1\\nto: EVE"\n"b: c": "d: e"\n" ": ""'
    )
    assert context_text({"form": {"fields": []}}) is None
    assert context_text(["a"]) is None
    assert context_text({"a": "b" * LONGEST}) is None


@pytest.mark.attack("M1", KIND)
def test_the_environment_names_reviewers() -> None:
    environ = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_CHAT_ID": str(CHAT)}

    def reviewers(named: str) -> Any:
        made: Any = delivery_named("telegram", {**environ, "TELEGRAM_REVIEWERS": named})
        return made._reviewers

    assert reviewers("1001, 1002 1003") == {1001, 1002, 1003}
    assert reviewers("") == frozenset()  # set, though to nobody: then nobody may press
    assert vars(delivery_named("telegram", environ))["_reviewers"] is None
    with pytest.raises(DeliveryError, match="TELEGRAM_REVIEWERS must be the numbers of users"):
        reviewers("ann")


async def told(deliver: Any) -> None:
    [delivery] = labelled(deliver).values()
    await delivery.send(Notice("review", "case_1", "Go?", LINK))


async def test_deliver_takes_functions_of_both_kinds_and_tells_each_once() -> None:
    heard: list[tuple[str, bool]] = []
    here = threading.get_ident()

    def plain(notice: Notice) -> None:
        heard.append((notice.body, threading.get_ident() == here))

    async def waiting(notice: Notice) -> None:
        await asyncio.sleep(0)
        plain(notice)

    class Teller:
        async def __call__(self, notice: Notice) -> None:
            plain(notice)

    functions: list[Callable[[Notice], object]] = [
        plain,
        waiting,
        partial(waiting),
        lambda said: waiting(said),
        Teller(),
    ]
    for each in functions:
        await told(each)
    assert heard == [("Go?", False), *[("Go?", True)] * 4]


async def test_a_sync_function_is_told_each_notice_once(tmp_path: Path) -> None:
    heard: list[str] = []

    def note(notice: Notice) -> None:
        heard.append(notice.kind)

    async with rig(tmp_path, also=lambda _: note) as there:
        waiting = there.ask(prompt="Go?", inline_actions=["approve", "reject"])
        await until(lambda: heard)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert heard.count("review") == 1


def test_deliver_takes_names_and_lists() -> None:
    terminal = TerminalDelivery()
    given = given_deliveries(["terminal", terminal, print])
    assert [each.name for each in given] == ["terminal", "terminal", "print"]
    assert given[1] is terminal
    assert list(labelled("terminal")) == ["terminal"]


@pytest.mark.parametrize(
    ("deliver", "why"),
    [
        (None, "not a NoneType"),
        (5, "not a int"),
        ({"telegram": 1}, "not a dict"),
        (["terminal", 5], "not a int"),
        ([["terminal"]], "not a list"),
        (TelegramDelivery, "not the class TelegramDelivery; make an instance of it first"),
        (
            type("Half", (), {"send": print})(),
            "a Half is not a delivery: it has no name and no shows_buttons and no update",
        ),
    ],
)
def test_deliver_refuses_anything_else_at_once(deliver: Any, why: str) -> None:
    for make in (HitlClient, HitlClientSync):
        with pytest.raises(TypeError, match=why):
            make(deliver=deliver)
    with pytest.raises(DeliveryError, match="there is no such delivery; there are auto, terminal"):
        HitlClient(deliver="telegrm")
