"""Following a thread: what its run adds to the store, as server-sent events, whichever process runs it."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

from pydantic_core import from_json, to_json

from askfirst import limits
from askfirst.clock import seconds
from askfirst.errors import StoreError
from askfirst.ids import case_id_of
from askfirst.messages import AssistantMessage, Message, ToolResultMessage, decode
from askfirst.permissions.operators import name_matcher
from askfirst.store import thread_news
from askfirst.store.engine import Engine
from askfirst.store.rows import ContinuationRow, RequestRow, decode_request
from askfirst.store.thread_news import Asked, ThreadNews

HEARTBEAT_SECONDS = 15.0
POLL_SECONDS = (0.2, 2.0)
"""The pause between two looks at the store without a wake-up: after news, and at most."""
OVERLAP = 60_000
"""Milliseconds of requests that are read again: clocks differ, and a commit may come late."""
_TOLD = 500
"""Of request events that an event's id remembers."""

OPENED, SETTLED = "request.opened", "request.settled"
_Told = tuple["Position", str, dict[str, Any]]

MayFollow = Callable[[str, str], Awaitable[bool]]
"""From a caller's id and a thread's id to whether the caller may follow the thread."""


def following(rules: Sequence[str]) -> MayFollow:
    """A `MayFollow` from rules such as ``key_1a2b=order-*``: a key's id, and a thread's id or a glob.

    Raises ``ValueError`` for a rule without both.
    """
    parsed: list[tuple[str, Callable[[str], bool]]] = []
    for rule in rules:
        key_id, _, pattern = rule.partition("=")
        if not key_id or not pattern:
            raise ValueError(
                f"{rule[:64]!r} does not say who may follow what; it is KEY_ID=THREAD, as in key_1a2b=order-*"
            )
        parsed.append((key_id, name_matcher(pattern)))

    async def may_follow(caller: str, thread_id: str) -> bool:
        return any(key_id == caller and matches(thread_id) for key_id, matches in parsed)

    return may_follow


# The position of a follower: it is the id of each event, so that a reconnect loses and repeats nothing.


_POSITION = re.compile(
    r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9a-f]{8})?\.([0-9a-f]{8})?\.((?:[0-9a-f]{8}){0,500})"
)


@dataclass(frozen=True, slots=True)
class Position:
    """What a follower has been told: messages by their number, requests by time, the rest by digests."""

    seq: int = 0
    """The next message."""
    since: int = 0
    """The latest time of a request event that was told, in milliseconds."""
    run: str = ""
    continuation: str = ""
    told: tuple[str, ...] = field(default=(), repr=False)
    """The latest request events, because those within `OVERLAP` are read again."""

    @classmethod
    def of(cls, event_id: str) -> Self | None:
        """The position that `id` wrote; None for any other text."""
        found = _POSITION.fullmatch(event_id)
        if found is None:
            return None
        seq, since, run, continuation, told = found.groups()
        marks = tuple(told[place : place + 8] for place in range(0, len(told), 8))
        return cls(int(seq), int(since), run or "", continuation or "", marks)

    @property
    def id(self) -> str:
        """The position as an event's id."""
        return f"{self.seq}.{self.since}.{self.run}.{self.continuation}.{''.join(self.told)}"

    def with_request(self, mark: str, at: int) -> Position:
        """After one more request event."""
        return replace(self, since=max(self.since, at), told=(*self.told, mark)[-_TOLD:])


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:8]


# What is told of each thing.


def _message(seq: int, run_id: str, body: str) -> dict[str, Any]:
    """A message without thinking, and without arguments of calls: only an agent knows which of those are secret."""
    message: Message = decode(body)
    data: dict[str, Any] = {"seq": seq, "run_id": run_id, "role": message.role, **_text(message.text)}
    if isinstance(message, AssistantMessage):
        data["tool_calls"] = [{"id": call.id, "name": call.name} for call in message.tool_calls]
        data["stop_reason"] = message.stop_reason
    elif isinstance(message, ToolResultMessage):
        data |= {
            "tool_call_id": message.tool_call_id,
            "tool_name": message.tool_name,
            "is_error": message.is_error,
        }
    return data


def _text(text: str) -> dict[str, Any]:
    """A text, cut off at a limit."""
    if len(text) <= limits.NOTE_CHARACTERS:
        return {"text": text}
    return {"text": text[: limits.NOTE_CHARACTERS], "is_cut": True}


def _request(row: RequestRow) -> dict[str, Any]:
    """A request with the arguments that people are shown; never the answer, in which somebody may type a secret."""
    call = decode_request(row).payload.call
    data: dict[str, Any] = {
        "question_id": row.question_id,
        "round": row.round,
        "case_id": case_id_of(row.thread_id, row.question_id, row.round),
        "kind": row.kind,
        "status": row.status,
        "created_at": seconds(row.created_at),
        "expires_at": seconds(row.expires_at),
    }
    if call is not None:
        data |= {"tool_call_id": call.tool_call_id, "tool_name": call.tool_name, "args": call.args}
    if row.status != "pending":
        data["settled_at"] = seconds(row.settled_at)
        answer: Any = None if row.answer is None else from_json(row.answer)
        if isinstance(answer, Mapping) and isinstance(decision := answer.get("decision"), str):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            data["decision"] = decision
    return data


def _continuation(row: ContinuationRow) -> dict[str, Any]:
    """A continuation without its error, which may hold anything: operators see it."""
    next_at = seconds(row.due_at) if row.state in ("due", "failed") else None
    return {"state": row.state, "attempts": row.attempts, "next_at": next_at}


def _run_status(news: ThreadNews, now: int) -> str:
    if news.leased_until is not None and news.leased_until > now:
        return "running"
    if news.run_status is not None:
        return news.run_status
    return "paused" if any(each.status == "pending" for each in news.requests) else "suspended"


class ThreadFollower:
    """Follows one thread for one client."""

    def __init__(
        self, engine: Engine, thread_id: str, now: Callable[[], int], key_id: str | None = None
    ) -> None:
        self._engine = engine
        self._thread_id = thread_id
        self._now = now
        self._key_id = key_id
        self._at: Position | None = None
        self._mark: thread_news.Mark | None = None
        self._has_ended = False

    async def exists(self) -> bool:
        """Whether there is such a thread."""
        return await self._engine.read(partial(thread_news.mark, self._thread_id)) is not None

    async def stream(
        self, at: Position | None, *, heartbeat: float = HEARTBEAT_SECONDS
    ) -> AsyncGenerator[bytes]:
        """Server-sent events from a position on, or how the thread stands now and then what is new.

        Ends if the thread is deleted, the key revoked, or the store out of reach; else when the client leaves.
        """
        self._at = at
        yield b"retry: 3000\n\n"
        loop, pause = asyncio.get_running_loop(), POLL_SECONDS[0]
        beat = loop.time() + heartbeat
        with self._engine.hub.waiting((self._thread_id, "")) as changed:
            while not self._has_ended:
                changed.clear()
                async for piece in self._new():
                    pause = POLL_SECONDS[0]
                    yield piece
                if loop.time() >= beat:
                    beat, self._mark = loop.time() + heartbeat, None  # a lapsed lease writes nothing
                    yield b": still here\n\n"
                try:
                    async with asyncio.timeout(0 if self._has_ended else min(pause, heartbeat)):
                        await changed.wait()
                except TimeoutError:
                    pause = min(pause * 1.5, POLL_SECONDS[1])

    async def _new(self) -> AsyncGenerator[bytes]:
        """What is new since the follower's position, which moves on; read in pages, and only if anything changed."""
        try:
            mark = await self._engine.read(partial(thread_news.mark, self._thread_id))
            while mark is None or mark != self._mark:
                news = None if mark is None else await self._news(self._at)
                if news is None:
                    self._has_ended = True
                    return
                if self._at is None:
                    self._at, events = await self._standing(news)
                    for event in events:
                        yield event
                else:
                    async for at, name, data in self._events(news, self._at):
                        self._at = at
                        yield _sent(name, data, at)
                if self._at.seq >= news.length:
                    self._mark = mark
                elif not news.messages:
                    self._has_ended = True  # it was deleted, and made again, while it was read
                    return
        except StoreError:
            self._has_ended = True  # the client reconnects

    async def _news(self, at: Position | None) -> ThreadNews | None:
        seq = None if at is None else at.seq
        since = (self._now() if at is None else at.since) - OVERLAP
        return await self._engine.read(partial(thread_news.news, self._thread_id, seq, since, self._key_id))

    async def _standing(self, news: ThreadNews) -> tuple[Position, list[bytes]]:
        """How the thread stands now: its open requests, continuation and run.

        Only the last of these events has an id: whoever loses the line before it gets all of them again.
        """
        past = [each.mark for each in _request_events(news.requests) if each.asked.status != "pending"]
        at = Position(news.length, self._now(), told=tuple(past[-_TOLD:]))
        told = [event async for event in self._events(news, at, is_first=True)]
        events = [_sent(name, data) for _, name, data in told[:-1]]
        return (told[-1][0], [*events, _sent(told[-1][1], told[-1][2], told[-1][0])]) if told else (at, [])

    async def _events(
        self, news: ThreadNews, at: Position, *, is_first: bool = False
    ) -> AsyncIterator[_Told]:
        """What is new: answers to what was asked before, messages, what is asked, how it goes on, how it stands."""
        fresh = _fresh(news.requests, at, is_first=is_first)
        opened = {each.mark for each in fresh if each.name == OPENED}
        count = next((place for place, each in enumerate(fresh) if each.opened in opened), len(fresh))
        async for told in self._asked(fresh[:count], at):
            at = told[0]
            yield told
        for seq, run_id, body in news.messages:
            at = replace(at, seq=seq + 1)
            yield at, "message", _message(seq, run_id, body)
        if at.seq < news.length:
            return  # the rest comes after the rest of the messages
        async for told in self._asked(fresh[count:], at):
            at = told[0]
            yield told
        if (row := news.continuation) is not None:
            mark = _digest(row.state, row.attempts, row.settled_at)
            if mark != at.continuation:
                at = replace(at, continuation=mark)
                yield at, "continuation", _continuation(row)
        if news.run_id is not None:
            status = _run_status(news, self._now())
            mark = _digest(news.run_id, status)
            if mark != at.run:
                at = replace(at, run=mark)
                yield at, "run", {"run_id": news.run_id, "status": status}

    async def _asked(self, events: Sequence[_RequestEvent], at: Position) -> AsyncIterator[_Told]:
        for each in events:
            asked = each.asked
            row = await self._engine.read(
                partial(thread_news.request, self._thread_id, asked.question_id, asked.round)
            )
            if row is not None:
                if each.name == OPENED:  # as it was then; that it is settled is an event of its own
                    row = row._replace(status="pending")
                at = at.with_request(each.mark, min(each.at, self._now()))
                yield at, each.name, _request(row)


class _RequestEvent(NamedTuple):
    """That a request was opened, or settled."""

    at: int
    name: str
    asked: Asked
    mark: str
    opened: str
    """The mark of its opening."""


def _request_events(requests: Sequence[Asked]) -> list[_RequestEvent]:
    """All events of these requests, by time: a position says up to which time they were told."""
    found: list[_RequestEvent] = []
    for each in requests:
        opened = _digest(OPENED, each.question_id, each.round)
        found.append(_RequestEvent(each.created_at, OPENED, each, opened, opened))
        if each.settled_at is not None:
            mark = _digest(SETTLED, each.question_id, each.round)
            at = max(each.created_at, each.settled_at)  # clocks differ
            found.append(_RequestEvent(at, SETTLED, each, mark, opened))
    return sorted(found, key=lambda event: (event.at, event.name, event.mark))


def _fresh(requests: Sequence[Asked], at: Position, *, is_first: bool) -> list[_RequestEvent]:
    """The request events that were not told yet; for whoever begins now, those of open requests."""
    told, floor = set(at.told), at.since - OVERLAP
    return [
        event
        for event in _request_events(requests)
        if event.mark not in told and (event.asked.status == "pending" if is_first else event.at >= floor)
    ]


def _sent(name: str, data: dict[str, Any], at: Position | None = None) -> bytes:
    """An event as it is sent."""
    head = "" if at is None else f"id: {at.id}\n"
    return f"{head}event: {name}\ndata: {to_json(data).decode()}\n\n".encode()
