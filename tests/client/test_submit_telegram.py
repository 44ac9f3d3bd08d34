"""A service that asks, our client, and a person who decides by a button in Telegram: all over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.client_rig import Rig, rig, until
from kit.telegram_server import CHAT, TOKEN, USER, TelegramServer, telegram_server

from askfirst.delivery import TelegramDelivery

pytestmark = pytest.mark.anyio
STRANGER = {**USER, "id": USER["id"] + 1, "first_name": "Eve"}


async def _asked(telegram: TelegramServer) -> int:
    await until(lambda: telegram.messages)
    return next(iter(telegram.messages))


def _label(telegram: TelegramServer, message: int, word: str) -> str:
    return next(each["text"] for each in telegram.buttons(message) if word in each["text"].lower())


async def _decide(there: Rig, telegram: TelegramServer) -> None:
    waiting = there.ask(prompt="Pay back 49.00 EUR?", inline_actions=["approve", "reject"])
    message = await _asked(telegram)
    approve = _label(telegram, message, "approve")
    [data] = [each["callback_data"] for each in telegram.buttons(message) if each["text"] == approve]

    refused = await telegram.press(message, approve, user=STRANGER)
    assert await telegram.told(refused)
    assert not waiting.done(), "a stranger's press decided"

    await telegram.press(message, approve)
    outcome = await waiting
    assert (outcome.status, outcome.action) == ("completed", "approve")
    context = outcome.submission_context
    assert context is not None
    assert context.submitted_via == "telegram_inline_button"
    assert context.submitted_by is not None
    assert context.submitted_by.platform_user_id == str(USER["id"])
    await until(lambda: not telegram.buttons(message))

    late = await telegram.press(message, approve, data=data)
    assert await telegram.told(late)


async def test_a_button_in_telegram_decides_the_case_of_a_service(tmp_path: Path) -> None:
    async with telegram_server() as telegram:
        delivery = TelegramDelivery(TOKEN, CHAT, reviewers={USER["id"]}, base_url=telegram.url)
        async with rig(tmp_path, also=lambda _: delivery, service={"inline": True}) as there:
            await _decide(there, telegram)
