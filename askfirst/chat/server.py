"""serve_channels: agents in chats. A message prompts an agent, its text is streamed back, its requests are cards.

Every message is stored before it is acknowledged, and handled by one worker at a time for each thread. Presses and
typed codes are settled by `askfirst.service.presses`; then any worker resumes the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

from askfirst.agent.agent import Agent
from askfirst.agent.result import AgentResult
from askfirst.chat.base import ChatPlatform, Conversation, Said
from askfirst.chat.cards import Cards
from askfirst.chat.conversations import RESUMER, Conversations, Registry, thread_id_of
from askfirst.chat.inbox import Inbox, QueuedMessage
from askfirst.chat.slack import SlackChat
from askfirst.chat.stream import TextStream
from askfirst.chat.telegram import TelegramChat
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import Clock, SystemClock
from askfirst.concurrency import cancel_all
from askfirst.delivery.base import Press, PressAnswer
from askfirst.delivery.text import cut
from askfirst.errors import (
    ChatError,
    DeliveryError,
    HitlNoPendingRequest,
    HitlRequestPending,
    HitlStaleAnswer,
    ResumeFailed,
    ResumeLater,
    StoreError,
)
from askfirst.service.cases import Cases
from askfirst.service.person import Authorize
from askfirst.service.places import Place
from askfirst.service.presses import Presses
from askfirst.visible_text import visible
from askfirst.workers.continuations import Continuation
from askfirst.workers.worker import Worker

logger = logging.getLogger("askfirst.chat")
SWEEP_SECONDS = 15.0
_MOST_PENDING = 20
_LINE = 120

NOT_FOR_YOU = "You are not one of those who may talk to this agent."
STOPPED = "Stopped."
NOTHING = "Nothing is running here."
FAILED = "This failed: {}"


def serve_channels(
    registry: Registry,
    *,
    store: str | SqlCheckpointer,
    slack: SlackChat | None = None,
    telegram: TelegramChat | None = None,
    authorize: Authorize | None = None,
    name: str = "Askfirst",
    clock: Clock | None = None,
) -> ChannelServer:
    """Serve agents in Slack and Telegram: ``await serve_channels(...).run()``, or ``async with`` it.

    ``registry`` has the agents by name; a message that begins with ``NAME:`` is for the agent of that name, any other
    message for the first agent. ``store`` is a database's URL or an open checkpointer; any number of processes may
    serve the same database (Telegram allows one listener for a bot). ``authorize`` is called before a decision
    counts, as in the service.
    """
    platforms: list[ChatPlatform] = [each for each in (slack, telegram) if each is not None]
    return ChannelServer(registry, store, platforms, authorize=authorize, name=name, clock=clock)


class ChannelServer:
    """Serves agents in chats while it is open. One conversation is one thread of the store."""

    def __init__(
        self,
        registry: Registry,
        store: str | SqlCheckpointer,
        platforms: list[ChatPlatform],
        *,
        authorize: Authorize | None = None,
        name: str = "Askfirst",
        clock: Clock | None = None,
    ) -> None:
        if not registry:
            raise ChatError("there is no agent to serve")
        if not platforms:
            raise ChatError("there is no chat to serve: give slack= or telegram=")
        self._registry = dict(registry)
        self._given = store
        self._platforms = {each.name: each for each in platforms}
        self._authorize = authorize
        self._name = name
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        given, stack = self._given, self._stack
        try:
            if isinstance(given, str):
                given = await stack.enter_async_context(checkpointer_from_url(given))
            cases = Cases(given, authorize=self._authorize, clock=self._clock)
            conversations = Conversations(self._registry, given, self._platforms)
            chats = Chats(given, cases, conversations, self._platforms, self._name, self._clock)
            stack.push_async_callback(chats.finish)
            await stack.enter_async_context(Worker(given, {RESUMER: chats.resume}))
            for platform in self._platforms.values():
                on_press = partial(chats.press, platform)
                opened = platform.open(given, self._clock, chats.hear, on_press, chats.pending)
                await stack.enter_async_context(opened)
            sweeping = asyncio.create_task(self._sweep(chats))
            stack.push_async_callback(cancel_all, [sweeping])
        except BaseException:
            await stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run(self) -> None:
        """Serve until `stop`, or until this is cancelled."""
        async with self:
            await self._stopping.wait()

    def stop(self) -> None:
        """Make `run` return once the messages that are being handled are done."""
        self._stopping.set()

    async def _sweep(self, chats: Chats) -> None:
        """Every `SWEEP_SECONDS`: settle expired requests, delete old messages, and take over messages that a worker
        left when it died."""
        while True:
            try:
                await chats.sweep()
            except Exception as error:
                logger.warning("the sweep of messages failed, will try again: %s", type(error).__name__)
            await self._clock.sleep(SWEEP_SECONDS)


class ThreadTasks:
    """At most one task for each thread at a time."""

    def __init__(self, work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def wake(self, thread_id: str) -> None:
        """Start a task for a thread. If one is running, another is started after it: the running one may have looked
        for work already."""
        if thread_id in self._at_work:
            self._again.add(thread_id)
            return
        self._at_work[thread_id] = task = asyncio.create_task(self._work(thread_id))
        task.add_done_callback(lambda _: self._worked(thread_id))

    def _worked(self, thread_id: str) -> None:
        self._at_work.pop(thread_id, None)
        if thread_id in self._again:
            self._again.discard(thread_id)
            self.wake(thread_id)

    async def finish(self) -> None:
        """Wait until every task is done."""
        while self._at_work:
            await asyncio.wait(list(self._at_work.values()))


class Chats:
    """The chats of a server whose store is open: receives messages, runs agents, and posts how runs end."""

    def __init__(
        self,
        store: SqlCheckpointer,
        cases: Cases,
        conversations: Conversations,
        platforms: Mapping[str, ChatPlatform],
        name: str,
        clock: Clock,
    ) -> None:
        self._store = store
        self._cases = cases
        self._conversations = conversations
        self._platforms = platforms
        self._clock = clock
        self._presses = Presses(cases)
        self._cards = Cards(store, cases, name)
        self._inbox = Inbox(store, clock)
        self._tasks = ThreadTasks(self._work)
        self._running: dict[str, Agent] = {}
        self._card_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def sweep(self) -> None:
        """Settle expired requests, delete old messages, and take over messages that a worker left when it died."""
        await self._store.expire_due()
        await self._cases.sweep()
        await self._inbox.forget_old()
        for thread_id in await self._inbox.threads():
            self._tasks.wake(thread_id)

    async def finish(self) -> None:
        """Wait until the messages that are being handled are done."""
        await self._tasks.finish()

    # Receiving messages.

    async def hear(self, said: Said) -> None:
        """Receive a person's message; returns when it is stored or answered."""
        platform = self._platforms[said.place.platform]
        name, text = self._conversations.addressed(said.text)
        thread_id = thread_id_of(said.place, name)
        known = await self._conversations.find(thread_id)
        if known is None and not said.is_addressed:
            return  # people talk to each other, not to an agent
        person = platform.people.get(said.account)
        is_decider = said.account in platform.deciders
        if person is None and not is_decider:
            await platform.tell(said, NOT_FOR_YOU)
            return
        place = Place(platform.name, platform.delivery, platform.deciders)
        answer = await self._cards.decide_by_reply(said, thread_id, self._presses, place)
        if answer is not None:
            await platform.tell(said, answer.text)
            return
        if person is None:
            await platform.tell(said, NOT_FOR_YOU)
        elif text.strip().strip(".!").lower() == "stop":
            await self._stop(thread_id, said, platform)
        elif text.strip():
            conversation = Conversation(thread_id, name, said.place, person.email or person.name, platform)
            await self._inbox.put(thread_id, said.message_id, text, conversation.stored())
            self._tasks.wake(thread_id)

    async def _stop(self, thread_id: str, said: Said, platform: ChatPlatform) -> None:
        """Abort the run of a thread, or its open requests, and delete its queued messages."""
        dropped = await self._inbox.delete_queued(thread_id)
        running = self._running.get(thread_id)
        conversation = await self._conversations.find(thread_id)
        if running is not None:
            running.abort()
        elif conversation is not None and await self._abort_requests(conversation):
            await platform.post(said.place, STOPPED)
        else:
            await platform.tell(said, STOPPED if dropped else NOTHING)

    async def _abort_requests(self, conversation: Conversation) -> bool:
        """Abort an agent's open requests; False if it has none, or if one was answered meanwhile."""
        async with self._card_lock(conversation.thread_id):
            try:
                await self._conversations.agent_of(conversation).abort_pending("stopped in the chat")
            except (HitlNoPendingRequest, HitlStaleAnswer):
                return False
            await self._cards.update(conversation)
            return True

    async def press(self, platform: ChatPlatform, press: Press) -> PressAnswer:
        """Decide a request with a press on its card."""
        await self._cards.record_message(press)
        return await self._presses.decide(Place(platform.name, platform.delivery, platform.deciders), press)

    async def pending(self, account: str) -> str:
        """The list of open requests as text, for an account that may decide."""
        platform = self._platforms[account.partition(":")[0]]
        if account not in platform.deciders:
            return NOT_FOR_YOU
        waiting = await self._store.pending(_MOST_PENDING)
        lines = [f"• {cut(visible(' '.join(each.request.payload.sentences)), _LINE)}" for each in waiting]
        return "\n".join(lines) or "Nothing waits for a decision."

    # Handling messages.

    async def _work(self, thread_id: str) -> None:
        try:
            while (taken := await self._inbox.take(thread_id)) is not None:
                is_done = False
                try:
                    async with self._inbox.renewing(taken):
                        is_done = await self._prompt(taken)
                finally:  # release the claim at once, so that the next sweep can retry the message
                    if not is_done:
                        await self._inbox.release(taken)
                if not is_done:
                    return
                await self._inbox.done(taken)
        except (StoreError, DeliveryError) as error:
            logger.error("the messages of thread %s will be retried: %s", thread_id, error)
        except Exception:
            logger.exception("the messages of thread %s will be retried", thread_id)

    async def _prompt(self, taken: QueuedMessage) -> bool:
        """Run an agent with a message; False if the thread waits for a decision, or another worker has its lease."""
        stored = await self._store.load(taken.thread_id)
        conversation = self._conversations.read(taken.thread_id, taken.conversation)
        is_begun = stored is not None and stored.run is not None and stored.run.run_id == taken.run_id
        if not is_begun:
            known = await self._conversations.find(taken.thread_id)
            if known is not None and await self._conversations.agent_of(known).pending_approvals():
                return False
            await self._conversations.keep(conversation)
        else:
            conversation = await self._conversations.find(taken.thread_id) or conversation
        agent = self._conversations.agent_of(conversation)
        try:
            if is_begun:
                result = await self._streamed(agent, conversation, agent.resume)
            else:
                prompt = partial(agent.prompt, taken.text, run_id=taken.run_id)
                result = await self._streamed(agent, conversation, prompt)
        except HitlRequestPending:
            return False
        return result.status != "suspended"

    async def resume(self, continuation: Continuation) -> AgentResult:
        """Resume a conversation after a decision: the resumer, on any worker."""
        conversation = await self._conversations.find(continuation.thread_id)
        if conversation is None:
            raise ResumeFailed("the store has no conversation with this thread")
        agent = self._conversations.agent_of(conversation)
        result = await self._streamed(agent, conversation, agent.resume)
        if result.status == "suspended":
            raise ResumeLater(result.reason or "another worker has the thread")
        self._tasks.wake(continuation.thread_id)
        return result

    async def _streamed(
        self, agent: Agent, conversation: Conversation, run: Callable[[], Awaitable[AgentResult]]
    ) -> AgentResult:
        """Run an agent, stream its text, post its requests as cards, and update its cards."""
        stream = TextStream(conversation.platform, conversation.place, self._clock)
        self._running[agent.thread_id] = agent
        try:
            async with stream.follow(agent):
                result = await run()
            async with self._card_lock(agent.thread_id):
                self._running.pop(agent.thread_id, None)
                await self._end(agent, conversation, stream, result)
        finally:
            self._running.pop(agent.thread_id, None)
        return result

    async def _end(
        self, agent: Agent, conversation: Conversation, stream: TextStream, result: AgentResult
    ) -> None:
        """Post how a run ended or paused."""
        if result.status == "suspended":
            return
        await self._cards.update(conversation)
        if result.status == "paused":
            await self._cards.post(agent, conversation)
        elif result.status == "aborted":
            await stream.say(STOPPED)
        elif result.status == "failed":
            await stream.say(FAILED.format(result.reason or "the run failed"))
        elif not stream.has_posted and result.text and conversation.told != _transcript_length(agent):
            await stream.say(result.text)  # another process produced it, and did not post it
        await self._conversations.keep(replace(conversation, told=_transcript_length(agent)))

    def _card_lock(self, thread_id: str) -> asyncio.Lock:
        """The lock that is held while a thread's cards are posted, or its requests aborted: a stop then finds all
        cards."""
        lock = self._card_locks.get(thread_id)
        if lock is None:
            self._card_locks[thread_id] = lock = asyncio.Lock()
        return lock


def _transcript_length(agent: Agent) -> int:
    """How many messages the transcript has. It is stored after a post, so that the same text is not posted again."""
    return len(agent.messages)
