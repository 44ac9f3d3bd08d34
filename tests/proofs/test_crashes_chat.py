"""A Slack bot is killed (kill -9) around a press: another worker resumes the run, and its tool runs once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from kit.paths import ROOT
from kit.patience import PATIENCE
from kit.warm_python import warm_python

from examples.local_slack import ADA, APP_TOKEN, BOT_TOKEN, CHANNEL, TEAM, LocalSlack, People, local_slack

pytestmark = pytest.mark.anyio
RUNS = "(cancel_order runs: A-1042)"


class Bots:
    """Workers of `examples/slack_bot.py` on one database, and their output."""

    def __init__(self, slack: LocalSlack, folder: Path) -> None:
        self._slack = slack
        self._folder = folder
        self._printed = folder / "printed"
        self.all: list[asyncio.subprocess.Process] = []

    async def start(self) -> asyncio.subprocess.Process:
        environment = {
            **os.environ,
            "SLACK_API": self._slack.url,
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_APP_TOKEN": APP_TOKEN,
            "SLACK_PEOPLE": f"{TEAM}:{ADA.id}=Ada",
            "DATABASE": f"sqlite:///{self._folder}/bot.db",
        }
        before = self._slack.connections
        with self._printed.open("ab") as printed:
            process = await asyncio.create_subprocess_exec(
                *warm_python(), str(ROOT / "examples" / "slack_bot.py"), env=environment, stdout=printed
            )
        self.all.append(process)
        await self._slack.until(lambda: self._slack.connections > before, PATIENCE)
        return process

    @property
    def runs(self) -> int:
        """How often the tool ran."""
        return self._printed.read_text().count(RUNS)


@pytest.fixture
async def bots(tmp_path: Path) -> AsyncGenerator[tuple[LocalSlack, People, Bots]]:
    async with stage(tmp_path) as made:
        yield made


@asynccontextmanager
async def stage(folder: Path) -> AsyncGenerator[tuple[LocalSlack, People, Bots]]:
    async with local_slack(ack_seconds=PATIENCE, trigger_seconds=PATIENCE) as slack:
        made = Bots(slack, folder)
        try:
            yield slack, People(slack), made
        finally:
            for process in made.all:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def card(slack: LocalSlack, people: People, thread: str) -> str | None:
    found = [each["ts"] for each in slack.in_channel(CHANNEL, thread) if people.buttons(CHANNEL, each["ts"])]
    return found[0] if found else None


def posted(slack: LocalSlack, thread: str) -> list[str]:
    return [slack.text(CHANNEL, each["ts"]) for each in slack.in_channel(CHANNEL, thread) if "bot_id" in each]


async def asked(slack: LocalSlack, people: People) -> tuple[str, str]:
    """Have the agent ask; returns the thread and the card."""
    thread = await people.say(CHANNEL, "cancel my order A-1042")
    await slack.until(lambda: card(slack, people, thread), PATIENCE)
    return thread, card(slack, people, thread) or ""


async def test_ten_presses_on_two_workers_after_a_kill_run_the_tool_once(
    bots: tuple[LocalSlack, People, Bots],
) -> None:
    slack, people, workers = bots
    first = await workers.start()
    thread, ts = await asked(slack, people)
    first.kill()
    await first.wait()
    await workers.start()
    await workers.start()
    before = slack.messages[CHANNEL, ts]
    await asyncio.gather(*(people.press(CHANNEL, ts, "Approve", message=before) for _ in range(10)))
    await slack.until(lambda: "It ran: A-1042 is cancelled." in slack.text(CHANNEL, ts), PATIENCE)
    await slack.until(
        lambda: card(slack, people, thread) not in (None, ts), PATIENCE
    )  # the next card asks to post
    assert workers.runs == 1
    assert "Approved by Ada." in slack.text(CHANNEL, ts)


@pytest.mark.parametrize("turns", [0, 5, 20, 60, 150])
async def test_a_worker_dies_between_a_press_and_its_answer(
    bots: tuple[LocalSlack, People, Bots], turns: int
) -> None:
    slack, people, workers = bots
    first = await workers.start()
    thread, ts = await asked(slack, people)
    slack.ack_seconds = 0.5  # the person sees no answer, and presses again
    before = slack.messages[CHANNEL, ts]
    pressing = asyncio.create_task(people.press(CHANNEL, ts, "Approve", message=before))
    for _ in range(turns):  # a little later each time: before, during and after the transaction that settles
        await asyncio.sleep(0.001)
    first.kill()
    await asyncio.gather(pressing, first.wait())
    slack.ack_seconds = PATIENCE
    await workers.start()
    await people.press(CHANNEL, ts, "Approve", message=before)
    await slack.until(
        lambda: (
            "It ran: A-1042 is cancelled." in slack.text(CHANNEL, ts)
            or card(slack, people, thread) not in (None, ts)
        ),
        PATIENCE,
    )
    if "It ran: A-1042 is cancelled." in slack.text(CHANNEL, ts):
        assert workers.runs == 1
    else:  # the bot died while the tool ran, so the effect is in doubt: a person is asked, and nothing is repeated
        assert workers.runs <= 1
        assert "cancel_order" in slack.text(CHANNEL, card(slack, people, thread) or "")
