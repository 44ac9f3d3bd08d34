"""A gate that tells people by itself: no service, no page, a button in a messenger."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kit.patience import PATIENCE
from kit.telegram_server import CHAT, TOKEN, telegram_server

from askfirst import Gate, SyncGate
from askfirst.delivery import TelegramDelivery
from askfirst.service.notifier import Notifier
from askfirst.service.places import Decider, Place

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("base_url", [None, "https://reviews.example.com"])
async def test_a_button_lets_a_guarded_function_run(tmp_path: Path, base_url: str | None) -> None:
    async with telegram_server() as telegram:
        phone = TelegramDelivery(TOKEN, CHAT, base_url=telegram.url)
        notify = Notifier(Place("phone", phone, {"telegram:7": Decider("Ada")}), base_url=base_url)
        async with Gate(f"sqlite:///{tmp_path}/askfirst.db", notify=notify) as gate:

            @gate.guarded(sentence="Pay back {cents:money:EUR} for order {order}")
            async def refund(order: str, cents: int) -> str:
                return f"{order}: {cents}"

            async with asyncio.timeout(PATIENCE):
                paying = asyncio.create_task(refund("A-1042", 4900))
                await telegram.until(lambda: telegram.messages)
                [(message, shown)] = telegram.messages.items()
                assert "Pay back 49.00 EUR for order A-1042" in shown["text"]
                labels = [button["text"] for button in telegram.buttons(message)]
                assert labels == ["Approve", "Reject", *(["Open the page"] if base_url else [])]
                await telegram.press(message, "Approve")
                assert await paying == "A-1042: 4900"
                await telegram.until(lambda: "The call has run." in telegram.messages[message]["text"])
        assert "Approved by Ada. The call has run." in telegram.messages[message]["text"]


async def test_people_are_told_of_a_function_that_is_not_async(tmp_path: Path) -> None:
    async with telegram_server() as telegram:
        phone = TelegramDelivery(TOKEN, CHAT, base_url=telegram.url)
        notify = Notifier(Place("phone", phone, {"telegram:7": Decider("Ada")}))
        async with Gate(f"sqlite:///{tmp_path}/askfirst.db", notify=notify) as gate:

            @gate.guarded
            def refund(order: str) -> str:
                return order

            async with asyncio.timeout(PATIENCE):
                paying = asyncio.create_task(asyncio.to_thread(refund, "A-1042"))
                await telegram.until(lambda: telegram.messages)
                [message] = telegram.messages
                await telegram.press(message, "Approve")
                assert await paying == "A-1042"


async def test_a_script_without_an_event_loop_tells_people(tmp_path: Path) -> None:
    async with telegram_server() as telegram:
        phone = TelegramDelivery(TOKEN, CHAT, base_url=telegram.url)
        notify = Notifier(Place("phone", phone, {"telegram:7": Decider("Ada")}))

        def script() -> str:
            with SyncGate(f"sqlite:///{tmp_path}/askfirst.db", notify=notify) as gate:

                @gate.guarded
                def refund(order: str) -> str:
                    return order

                return refund("A-1042")

        async with asyncio.timeout(PATIENCE):
            paying = asyncio.create_task(asyncio.to_thread(script))
            await telegram.until(lambda: telegram.messages)
            [message] = telegram.messages
            await telegram.press(message, "Approve")
            assert await paying == "A-1042"
