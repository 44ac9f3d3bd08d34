"""The demo from end to end: the service, the agent that asks, and the person who answers."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from desk import INSTRUCTIONS, Desk, Payment
from fastapi import FastAPI
from open_service import address_of, listener, serving
from rich.console import Console
from single_keys import has_keys, keys
from visitor import NotAsExpected, approve

from askfirst import Agent, AgentResult
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.cli.qr import print_qr
from askfirst.cli.render import TerminalView
from askfirst.delivery.terminal import Column
from askfirst.events import AgentEvent, HitlAnswerEvent
from askfirst.hitl import CheckpointedChannel, HitlStaleAnswer
from askfirst.models import Model
from askfirst.requests import ApproveRequest
from askfirst.service.app import create_app
from askfirst.service.case import Case
from askfirst.service.embedding import review_link

THREAD = "refund-of-ada"
TIME_TO_ANSWER = 900
TIME_FOR_AUTO = 120
LINGER = 3.0
"""Seconds that the page stays after the end, for the browser that has just answered there."""
DECISIONS = {"a": "approve", "d": "deny"}
_WHAT_YOU_SAW = """
What you just saw: an agent wanted to pay, and its run stopped before the call.
The request was in a database first, so a crash would have lost nothing.
A person decided about the exact arguments, and the first answer counted."""
_NEXT = "Next: docs/guide/guard.md puts a function of your own behind a decision."
WANTED = [Payment("A-1042", 4900)]
"""The payments that ``--auto`` expects at the end."""


class Play:
    """One run of the demo."""

    def __init__(self, model: Model, desk: Desk, *, auto: bool) -> None:
        self._model = model
        self._desk = desk
        self._auto = auto
        self._console = Console(highlight=False)
        self._column = Column(self._console)
        self._cases: asyncio.Queue[Case] = asyncio.Queue()
        self._answered = asyncio.Event()
        self._visit = asyncio.Lock()
        self._on_page = False
        self._failed: str | None = None

    async def run(self, prompt: str, port: int, base_url: str | None) -> int:
        """Run the demo; returns the exit code."""
        with tempfile.TemporaryDirectory(prefix="askfirst-demo-") as folder, listener(port) as socket:
            async with SQLiteCheckpointer(Path(folder) / "demo.db") as store:
                app = create_app(
                    store, base_url=base_url or address_of(socket), on_case=self._cases.put, hold_seconds=0
                )
                async with serving(app, socket):
                    result = await self._perform(app, store, prompt)
                    if self._on_page and not self._auto:
                        await asyncio.sleep(LINGER)
        return self._verdict(result)

    async def _perform(self, app: FastAPI, store: SQLiteCheckpointer, prompt: str) -> AgentResult:
        channel = CheckpointedChannel(checkpointer=store, thread_id=THREAD, default_timeout=TIME_TO_ANSWER)
        agent = Agent(
            id="refund-desk",
            model=self._model,
            tools=self._desk.tools,
            instructions=INSTRUCTIONS,
            channel=channel,
            checkpointer=store,
            thread_id=THREAD,
        )
        agent.subscribe(TerminalView(self._console))
        agent.subscribe(self._hear)
        with suppress(NotImplementedError):  # Windows; there Ctrl-C cancels the run instead
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, agent.abort)
        if self._auto:
            asyncio.get_running_loop().call_later(TIME_FOR_AUTO, self._give_up, agent)
        async with self._person(app, channel, agent):
            result = await agent.prompt(prompt)
            if result.status == "completed":
                async with self._visit:  # the visitor still reads the page after the answer
                    pass
            return result

    def _give_up(self, agent: Agent) -> None:
        self._failed = f"it took more than {TIME_FOR_AUTO} seconds"
        agent.abort()

    def _hear(self, event: AgentEvent) -> None:
        if isinstance(event, HitlAnswerEvent):
            self._answered.set()

    @asynccontextmanager
    async def _person(self, app: FastAPI, channel: CheckpointedChannel, agent: Agent) -> AsyncGenerator[None]:
        """Run a person who answers the requests. If that task fails, the agent is aborted."""
        person = asyncio.create_task(self._answer_all(app, channel))
        person.add_done_callback(lambda _: agent.abort())
        try:
            yield
        finally:
            person.cancel()
            with suppress(asyncio.CancelledError, NotAsExpected):
                await person

    async def _answer_all(self, app: FastAPI, channel: CheckpointedChannel) -> None:
        while True:
            case = await self._cases.get()
            self._answered.clear()
            link = await review_link(app, case.case_id)
            self._say("link", "the page where a person decides:")
            self._console.print(link, markup=False, soft_wrap=True)  # in one piece, to be clicked or copied
            try:
                await self._answer(case, link, channel)
            except NotAsExpected as error:
                self._failed = str(error)
                raise

    async def _answer(self, case: Case, link: str, channel: CheckpointedChannel) -> None:
        if self._auto:
            async with self._visit:
                await approve(link, _shown(case), lambda text: self._say("auto", text))
            await self._answered.wait()
            return
        print_qr(self._console, link)
        if has_keys():
            await self._by_key(case, channel)
        else:
            self._column.block("wait", "Open the link and decide there.", style="dim")
            await self._answered.wait()
            self._on_page = True

    async def _by_key(self, case: Case, channel: CheckpointedChannel) -> None:
        """Wait for the page or a key, whichever is first."""
        hint = "Open the link and decide there, or press a to approve, d to deny."
        answered = asyncio.create_task(self._answered.wait())
        with keys(lambda: self._column.block("wait", hint, style="dim")) as pressed:
            while not answered.done():
                key = asyncio.create_task(pressed.get())
                await asyncio.wait([answered, key], return_when=asyncio.FIRST_COMPLETED)
                if not key.done():
                    key.cancel()
                    self._on_page = True
                elif key.result() in DECISIONS and case.request is not None:
                    await self._settle(channel, case.request.question_id, DECISIONS[key.result()])
                    await answered
                else:
                    self._column.block("wait", "That key decides nothing. Press a or d.", style="dim")

    async def _settle(self, channel: CheckpointedChannel, question_id: str, decision: str) -> None:
        try:
            await channel.answer(question_id, {"decision": decision}, by="you", via="terminal")
        except HitlStaleAnswer:
            self._column.block("late", "It was decided on the page a moment before.")
            self._on_page = True

    def _say(self, label: str, text: str) -> None:
        self._column.block(label, text, label_style="bold cyan")

    def _verdict(self, result: AgentResult) -> int:
        if not self._auto:
            if result.status == "completed":
                ran = "Then the call ran, once." if self._desk.payments else "So the call did not run."
                self._column.block("", f"{_WHAT_YOU_SAW}\n{ran} {_NEXT}")
            return {"completed": 0, "aborted": 130}.get(result.status, 1)
        if self._failed is None and result.status == "completed" and self._desk.payments == WANTED:
            self._column.block("auto", "success: asked, answered on the page, paid once", style="green")
            return 0
        why = self._failed or f"the run is {result.status}, and what was paid is {self._desk.payments}"
        self._column.block("auto", f"failure: {why}", style="red")
        return 130 if result.status == "aborted" and self._failed is None else 1


def _shown(case: Case) -> list[str]:
    """The texts that the page of a call must show: the tool, and every argument's name and value."""
    payload = None if case.request is None else case.request.payload
    if not isinstance(payload, ApproveRequest):
        return [case.prompt]
    parts = [payload.tool_name]
    for name, value in payload.args.items():
        parts += [name, str(value)]
    return parts
