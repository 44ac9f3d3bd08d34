"""A process that receives a bot's presses, prints a line, and never finishes the first press: ``URL DATABASE``."""

from __future__ import annotations

import asyncio
import sys

from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.delivery.base import Press, PressAnswer
from askfirst.delivery.telegram import TelegramDelivery
from kit.telegram_server import CHAT, TOKEN


async def on_press(press: Press) -> PressAnswer:
    print(press.case_id, press.action, flush=True)  # noqa: T201
    await asyncio.Event().wait()
    raise AssertionError


async def main(url: str, database: str) -> None:
    async with SQLiteCheckpointer(database) as store:
        delivery = TelegramDelivery(TOKEN, CHAT, store=store, base_url=url)
        async with delivery.listening(on_press):
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
