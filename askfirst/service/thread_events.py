"""Following a thread: everything that its runs add to the store, as server-sent events, from any process."""

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
from askfirst.store import thread_changes
from askfirst.store.engine import Engine
from askfirst.store.rows import ContinuationRow, RequestRow, decode_request
from askfirst.store.thread_changes import RequestMark, ThreadNews

HEARTBEAT_SECONDS = 15.0
POLL_SECONDS = (0.2, 2.0)
"""The polling interval without a wake-up: the first after news, and the longest."""
OVERLAP = 60_000
"""Requests of the last milliseconds are read again, because clocks differ and a commit may come late."""
_MOST_DIGESTS = 500
"""How many digests of sent request events an event's id has."""

OPENED, SETTLED = "request.opened", "request.settled"
_Event = tuple["Position", str, dict[str, Any]]

MayFollow = Callable[[str, str], Awaitable[bool]]
"""A function that takes an API key's id and a thread's id, and returns whether the key may follow the thread."""


def following(rules: Sequence[str]) -> MayFollow:
    """A `MayFollow` from rules such as ``key_1a2b=order-*``: a key's id, and a thread's id or a glob.

    Raises ``ValueError`` for a rule that lacks one of them.
    """
    parsed: list[tuple[str, Callable[[str], bool]]] = []
    for rule in rules:
        key_id, _, pattern = rule.partition("=")
        if not key_id or not pattern:
            raise ValueError(
                f"{rule[:64]!r} is not a rule for following threads; write KEY_ID=THREAD, as in key_1a2b=order-*"
            )
        parsed.append((key_id, name_matcher(pattern)))

    async def may_follow(caller: str, thread_id: str) -> bool:
        return any(key_id == caller and matches(thread_id) for key_id, matches in parsed)

    return may_follow


# The position of a follower. It is the id of each event, so that a reconnect loses and repeats nothing.


_POSITION = re.compile(
    r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9a-f]{8})?\.([0-9a-f]{8})?\.((?:[0-9a-f]{8}){0,500})"
)


@dataclass(frozen=True, slots=True)
class Position:
    """Which events a follower has received: messages by number, requests by time, run and continuation by digest."""

    seq: int = 0
    """The number of the next message."""
    since: int = 0
    """The latest time of a request event that was sent, in milliseconds."""
    run: str = ""
    continuation: str = ""
    told: tuple[str, ...] = field(default=(), repr=False)
    """Digests of the latest request events that were sent. They are needed because `OVERLAP` is read again."""

    @classmethod
    def of(cls, event_id: str) -> Self | None:
        """The position from an event's id; None for a text that is not such an id."""
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
        """The position after one more request event."""
        return replace(self, since=max(self.since, at), told=(*self.told, mark)[-_MOST_DIGESTS:])


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:8]


# The data of each event.


def _message(seq: int, run_id: str, body: str) -> dict[str, Any]:
    """A message without its thinking and without the arguments of calls: only the agent knows which are secret."""
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
    """A text, cut at a limit; ``is_cut`` says so."""
    if len(text) <= limits.NOTE_CHARACTERS:
        return {"text": text}
    return {"text": text[: limits.NOTE_CHARACTERS], "is_cut": True}


def _request(row: RequestRow) -> dict[str, Any]:
    """A request with the arguments that people see.

    Only the decision of the answer is included: a person may have typed a secret.
    """
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
    """A continuation without its error text, which may hold secrets. Operators see it."""
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
        self._mark: thread_changes.Mark | None = None
        self._has_ended = False

    async def exists(self) -> bool:
        """Whether the thread exists."""
        return await self._engine.read(partial(thread_changes.mark, self._thread_id)) is not None

    async def stream(
        self, at: Position | None, *, heartbeat: float = HEARTBEAT_SECONDS
    ) -> AsyncGenerator[bytes]:
        """Server-sent events from a position on; without a position, the thread's current state and then its changes.

        Ends when the client disconnects, the thread is deleted, the API key is revoked, or the store cannot be
        reached.
        """
        self._at = at
        yield b"retry: 3000\n\n"
        loop, pause = asyncio.get_running_loop(), POLL_SECONDS[0]
        beat = loop.time() + heartbeat
        with self._engine.hub.waiting((self._thread_id, "")) as changed:
            while not self._has_ended:
                changed.clear()
                async for piece in self._new_events():
                    pause = POLL_SECONDS[0]
                    yield piece
                if loop.time() >= beat:
                    # Read the thread again: an expired lease changes the run's state without a write.
                    beat, self._mark = loop.time() + heartbeat, None
                    yield b": still here\n\n"
                try:
                    async with asyncio.timeout(0 if self._has_ended else min(pause, heartbeat)):
                        await changed.wait()
                except TimeoutError:
                    pause = min(pause * 1.5, POLL_SECONDS[1])

    async def _new_events(self) -> AsyncGenerator[bytes]:
        """The events after the follower's position, which is advanced.

        The store is read in pages, only after a change.
        """
        try:
            mark = await self._engine.read(partial(thread_changes.mark, self._thread_id))
            while mark is None or mark != self._mark:
                news = None if mark is None else await self._news(self._at)
                if news is None:
                    self._has_ended = True
                    return
                if self._at is None:
                    self._at, events = await self._current_state(news)
                    for event in events:
                        yield event
                else:
                    async for at, name, data in self._events(news, self._at):
                        self._at = at
                        yield _encoded(name, data, at)
                if self._at.seq >= news.length:
                    self._mark = mark
                elif not news.messages:
                    self._has_ended = True  # the thread was deleted and created again while it was read
                    return
        except StoreError:
            self._has_ended = True  # the client reconnects

    async def _news(self, at: Position | None) -> ThreadNews | None:
        seq = None if at is None else at.seq
        since = (self._now() if at is None else at.since) - OVERLAP
        return await self._engine.read(
            partial(thread_changes.news, self._thread_id, seq, since, self._key_id)
        )

    async def _current_state(self, news: ThreadNews) -> tuple[Position, list[bytes]]:
        """The current state of the thread as events: its open requests, its continuation and its run.

        Only the last of these events has an id. A client that disconnects before it gets all of them again.
        """
        past = [each.mark for each in _request_events(news.requests) if each.asked.status != "pending"]
        at = Position(news.length, self._now(), told=tuple(past[-_MOST_DIGESTS:]))
        told = [event async for event in self._events(news, at, is_first=True)]
        events = [_encoded(name, data) for _, name, data in told[:-1]]
        return (told[-1][0], [*events, _encoded(told[-1][1], told[-1][2], told[-1][0])]) if told else (at, [])

    async def _events(
        self, news: ThreadNews, at: Position, *, is_first: bool = False
    ) -> AsyncIterator[_Event]:
        """The new events, in this order: answers to earlier requests, messages, new requests, continuation, run."""
        fresh = _unsent(news.requests, at, is_first=is_first)
        opened = {each.mark for each in fresh if each.name == OPENED}
        count = next((place for place, each in enumerate(fresh) if each.opened in opened), len(fresh))
        async for told in self._with_rows(fresh[:count], at):
            at = told[0]
            yield told
        for seq, run_id, body in news.messages:
            at = replace(at, seq=seq + 1)
            yield at, "message", _message(seq, run_id, body)
        if at.seq < news.length:
            return  # the other events follow after the remaining messages
        async for told in self._with_rows(fresh[count:], at):
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

    async def _with_rows(self, events: Sequence[_RequestEvent], at: Position) -> AsyncIterator[_Event]:
        for each in events:
            asked = each.asked
            row = await self._engine.read(
                partial(thread_changes.request, self._thread_id, asked.question_id, asked.round)
            )
            if row is not None:
                if each.name == OPENED:  # the state at the opening; settling has its own event
                    row = row._replace(status="pending")
                at = at.with_request(each.mark, min(each.at, self._now()))
                yield at, each.name, _request(row)


class _RequestEvent(NamedTuple):
    """The event that a request was opened, or that it was settled."""

    at: int
    name: str
    asked: RequestMark
    mark: str
    opened: str
    """The mark of the event that the request was opened."""


def _request_events(requests: Sequence[RequestMark]) -> list[_RequestEvent]:
    """All events of these requests, ordered by time, because a position stores the time of the last one sent."""
    found: list[_RequestEvent] = []
    for each in requests:
        opened = _digest(OPENED, each.question_id, each.round)
        found.append(_RequestEvent(each.created_at, OPENED, each, opened, opened))
        if each.settled_at is not None:
            mark = _digest(SETTLED, each.question_id, each.round)
            at = max(each.created_at, each.settled_at)  # clocks differ
            found.append(_RequestEvent(at, SETTLED, each, mark, opened))
    return sorted(found, key=lambda event: (event.at, event.name, event.mark))


def _unsent(requests: Sequence[RequestMark], at: Position, *, is_first: bool) -> list[_RequestEvent]:
    """The request events that were not sent yet; for a new follower (``is_first``), those of open requests."""
    told, floor = set(at.told), at.since - OVERLAP
    return [
        event
        for event in _request_events(requests)
        if event.mark not in told and (event.asked.status == "pending" if is_first else event.at >= floor)
    ]


def _encoded(name: str, data: dict[str, Any], at: Position | None = None) -> bytes:
    """An event in the format of server-sent events."""
    head = "" if at is None else f"id: {at.id}\n"
    return f"{head}event: {name}\ndata: {to_json(data).decode()}\n\n".encode()
