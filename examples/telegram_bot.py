"""The same support agent as in `slack_bot.py`, in a Telegram chat.

    python examples/telegram_bot.py --local            a simulated Telegram on this machine: no account needed
    python examples/telegram_bot.py --local --auto     the same, with a simulated person
    python examples/telegram_bot.py                    your bot: TELEGRAM_BOT_TOKEN, TELEGRAM_PEOPLE

TELEGRAM_PEOPLE has the people who may talk to the agent and decide: "1001=Ada, 1002=Ben".

It needs the extras ``delivery``, ``service``, ``slack`` and ``sqlite``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from local_telegram import TOKEN, USER, TelegramServer, telegram_server
from slack_bot import people_in, program, support, variables

from askfirst.chat import TelegramChat, serve_channels


async def serve() -> None:
    """Serve the bot that the environment names; Telegram allows one listener for each bot."""
    token, people = variables("TELEGRAM_BOT_TOKEN", "TELEGRAM_PEOPLE")
    chat = TelegramChat(
        token,
        people=people_in(people),
        base_url=os.environ.get("TELEGRAM_API", "https://api.telegram.org"),
    )
    store = os.environ.get("DATABASE", "sqlite:///telegram_bot.db")
    await serve_channels({"support": support}, store=store, telegram=chat).run()


# Telegram on this machine.


@asynccontextmanager
async def worker(telegram: TelegramServer) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run this program in another process, and wait until it polls the Telegram on this machine."""
    variables = {
        "TELEGRAM_API": telegram.url,
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "TELEGRAM_PEOPLE": f"{USER['id']}=Ada",
    }
    before = telegram.polls
    async with program(__file__, **variables) as process:
        await telegram.until(lambda: telegram.polls > before)
        yield process


def open_card(telegram: TelegramServer) -> int | None:
    """The last message with buttons, if there is one."""
    found = [each for each in telegram.messages if telegram.buttons(each)]
    return found[-1] if found else None


async def play() -> None:
    """The whole story: a message, a card, kill -9, a press, another process that resumes, and the tool runs once."""
    async with telegram_server() as telegram:
        async with worker(telegram) as first:
            print("Ada: cancel my order A-1042")
            await telegram.say("cancel my order A-1042")
            await telegram.until(lambda: open_card(telegram))
            print("the agent asks:", [each["text"] for each in telegram.buttons(open_card(telegram) or 0)])
            first.kill()
            print("kill -9")
        async with worker(telegram):
            for _ in range(2):
                await telegram.until(lambda: open_card(telegram))
                print("Ada presses Approve, in another process")
                card = open_card(telegram) or 0
                await telegram.told(await telegram.press(card, "Approve"))
                await telegram.until(lambda card=card: not telegram.buttons(card))
            await telegram.until(lambda: "That is all." in telegram.posted())
            await telegram.until(lambda: sum("It ran" in each for each in telegram.posted()) == 2)
        for text in telegram.posted():
            print("|", text.splitlines()[-1])
        ran = telegram.posted().count("For the record: A-1042 is cancelled.")
        print("success" if ran == 1 else "failure")
        if ran != 1:
            sys.exit(1)


async def talk() -> None:
    """Talk to the agent from this terminal: a line is a message; the label of a button presses it."""
    async with telegram_server() as telegram, worker(telegram):
        shown: dict[int, str] = {}
        print(
            'Write to the agent, such as "cancel my order"; press a button by its label; an empty line ends.'
        )
        while line := (await asyncio.to_thread(input, "you > ")).strip():
            card = open_card(telegram)
            if card is not None and line in [each["text"] for each in telegram.buttons(card)]:
                await telegram.press(card, line)
            else:
                await telegram.say(line)
            with suppress(TimeoutError):
                async with asyncio.timeout(3):
                    await telegram.until(lambda: False)
            for number, message in telegram.messages.items():
                if shown.get(number) != message["text"]:
                    shown[number] = message["text"]
                    buttons = [each["text"] for each in telegram.buttons(number)]
                    print("bot |", message["text"].replace("\n", "\n    | "), buttons or "")


if __name__ == "__main__":
    local, auto = "--local" in sys.argv, "--auto" in sys.argv
    with suppress(KeyboardInterrupt):
        asyncio.run(play() if local and auto else talk() if local else serve())
