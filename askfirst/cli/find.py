"""Open requests and cases, and the one that an id means."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import seconds
from askfirst.ids import NONCE_DIGITS, case_id_of
from askfirst.requests import HitlRequest
from askfirst.service.adoption import adopted_case
from askfirst.service.case import Case, case_of
from askfirst.service.transitions import ended_as
from askfirst.store import inspect as store
from askfirst.store.rows import decode_request, decode_text
from askfirst.visible_text import visible

if TYPE_CHECKING:
    from askfirst.store.case_rows import CaseRow
    from askfirst.store.inspect import AskedRow, CaseAndKey
    from askfirst.store.rows import RequestRow


# Open items: an agent's request, or a case that another service opened.


_PAGE = 100
_PREFIX = "review_"
_MANY = 5_000
_CASE_ID = re.compile(f"{_PREFIX}[0-9a-f]{{32}}")
_DIGITS = re.compile("[0-9a-f]{8,32}")


def digits_of(id: str, nonce: int | None) -> str:
    """The digits that a short id begins with: a request's own random digits, else those of the whole id.

    The whole id of an agent's request is derived from names that a model chooses, so a model could make its beginning
    equal another id's. A service's case has a random id. Requests of earlier versions have no random digits.
    """
    return id.removeprefix(_PREFIX) if nonce is None else f"{nonce:0{NONCE_DIGITS}x}"


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A request of an Askfirst agent. ``id`` names this round of the request only."""

    id: str
    row: RequestRow
    request: HitlRequest
    agent_id: str | None

    @property
    def digits(self) -> str:
        """What its short id begins with."""
        return digits_of(self.id, self.row.nonce)

    @property
    def kind(self) -> str:
        """What is asked: ``confirm``, ``approve``, ``ask`` or ``escalate``."""
        return self.row.kind

    @property
    def asker(self) -> str:
        """The id of the agent that asks, or the thread's if the agent is not known."""
        return next(reversed(self.request.agents), None) or self.agent_id or self.row.thread_id

    @property
    def tool(self) -> str | None:
        """The tool that waits to be run."""
        call = self.request.payload.gated_call
        return None if call is None else call.tool_name

    @property
    def prompt(self) -> str:
        """What is asked, in words."""
        return " / ".join(self.request.payload.sentences)

    @property
    def created_at(self) -> float:
        """Since when, in seconds since 1970."""
        return seconds(self.row.created_at)

    @property
    def expires_at(self) -> float | None:
        """Until when; None for a request without a time-out."""
        return seconds(self.row.expires_at)

    @property
    def case(self) -> Case:
        """The request as the service shows it."""
        return adopted_case(self.row)

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints of it in a list."""
        row = self.row
        return {
            **_common(self, "agent"),
            "status": row.status,
            "tool": self.tool,
            "digest": row.digest,
            "thread_id": row.thread_id,
            "question_id": row.question_id,
            "round": row.round,
        }


@dataclass(frozen=True, slots=True)
class ServiceCase:
    """A case that a service opened with an API key."""

    id: str
    case: Case
    key_name: str | None

    @property
    def digits(self) -> str:
        """What its short id begins with."""
        return digits_of(self.id, None)

    @property
    def kind(self) -> str:
        """The case's type, in the protocol's word."""
        return self.case.type

    @property
    def asker(self) -> str:
        """Whose key it was opened with."""
        return self.key_name or self.case.key_id or "unknown"

    @property
    def prompt(self) -> str:
        """What is asked, in words."""
        return self.case.prompt

    @property
    def created_at(self) -> float:
        """Since when, in seconds since 1970."""
        return self.case.created_at

    @property
    def expires_at(self) -> float | None:
        """Until when."""
        return self.case.expires_at

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints of it in a list; the fields of an agent's request are null."""
        nothing: dict[str, Any] = dict.fromkeys(("tool", "digest", "thread_id", "question_id", "round"))
        return {**_common(self, "service"), "status": self.case.status, **nothing}


Item = AgentRequest | ServiceCase


def _common(item: Item, source: str) -> dict[str, Any]:
    return {
        "id": item.id,
        "is_open": True,
        "source": source,
        "kind": item.kind,
        "from": item.asker,
        "prompt": item.prompt,
        "created_at": item.created_at,
        "expires_at": item.expires_at,
    }


def request_of(found: AskedRow) -> AgentRequest:
    """A request from its row."""
    row = found.request
    case_id = case_id_of(row.thread_id, row.question_id, row.round)
    return AgentRequest(case_id, row, decode_request(row), found.agent_id)


def service_case_of(found: CaseAndKey) -> ServiceCase:
    """A service's case from its row."""
    return ServiceCase(found.case.case_id, case_of(found.case), decode_text(found.key_name))


async def pending_items(checkpointer: SqlCheckpointer) -> AsyncGenerator[Item]:
    """All that is open, oldest first."""
    heads: list[tuple[Item, AsyncGenerator[Item]]] = []
    streams: tuple[AsyncGenerator[Item], ...] = (_requests(checkpointer), _cases(checkpointer))
    for stream in streams:
        first = await anext(stream, None)
        if first is not None:
            heads.append((first, stream))
    while heads:
        place = min(range(len(heads)), key=lambda place: heads[place][0].created_at)
        item, stream = heads.pop(place)
        yield item
        following = await anext(stream, None)
        if following is not None:
            heads.insert(place, (following, stream))


async def _requests(checkpointer: SqlCheckpointer) -> AsyncGenerator[Item]:
    last: RequestRow | None = None
    while True:
        page = await checkpointer.engine.read(partial(store.request_page, _PAGE, last))
        for found in page:
            yield request_of(found)
        if len(page) < _PAGE:
            return
        last = page[-1].request


async def _cases(checkpointer: SqlCheckpointer) -> AsyncGenerator[Item]:
    last: CaseRow | None = None
    while True:
        page = await checkpointer.engine.read(partial(store.case_page, _PAGE, last))
        for found in page:
            yield service_case_of(found)
        if len(page) < _PAGE:
            return
        last = page[-1].case


NOT_OPEN = 4
SHOWN = 8
"""The shortest short id: so many characters are printed, and have to be typed."""
_NAMED = 5


class NotOpen(click.ClickException):
    """No open item has this id, or the item is no longer open; nothing was changed."""

    exit_code = NOT_OPEN


class Ambiguous(click.ClickException):
    """Several open items match."""


async def only_open(checkpointer: SqlCheckpointer) -> Item:
    """The only open item. Raises `NotOpen` if there is none, and `Ambiguous` if there are several."""
    found: Item | None = None
    async with aclosing(pending_items(checkpointer)) as items:
        async for item in items:
            if found is not None:
                raise Ambiguous(
                    "Several requests wait for a person: name one of those that askfirst pending prints."
                )
            found = item
    if found is None:
        raise NotOpen("Nothing waits for a person.")
    return found


@dataclass(frozen=True, slots=True)
class Ended:
    """An item that has ended, and how; times are seconds since 1970."""

    id: str
    kind: str
    prompt: str
    status: str
    ended_at: float | None
    by: str | None
    via: str | None
    reason: str | None
    case: Case = field(repr=False)
    """The request or case as it ended, with its result."""

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints of it; the answer is not in it."""
        names = ("id", "kind", "prompt", "status", "ended_at", "by", "via", "reason")
        return {"is_open": False, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True, slots=True)
class _Key:
    """The identity of an open item: its whole id, and the digits that its short id begins with."""

    id: str
    digits: str
    asked: store.RequestKey | None = None

    @classmethod
    def of_request(cls, asked: store.RequestKey) -> _Key:
        case_id = case_id_of(asked.thread_id, asked.question_id, asked.round)
        return cls(case_id, digits_of(case_id, asked.nonce), asked)

    @classmethod
    def of_case(cls, case_id: str) -> _Key:
        return cls(case_id, digits_of(case_id, None))

    def is_named(self, text: str) -> bool:
        """Whether a text is the item's whole id, or a short id that was printed for it."""
        return text == self.id or (len(text) >= SHOWN and self.digits.startswith(text))

    def is_asked_as(self, text: str) -> bool:
        """Whether a text is the agent's own id of the item, part of which its model may have chosen."""
        asked = self.asked
        return asked is not None and text in (asked.question_id, f"{asked.thread_id}/{asked.question_id}")


async def find_open(checkpointer: SqlCheckpointer, text: str) -> Item:
    """The open item with this id, whole or short. Raises `NotOpen` and `Ambiguous`.

    A question id is not accepted: it is the id of a tool call, which a model chooses, and which could equal the short
    id of another item.
    """
    found = await _by_id(checkpointer, text)
    if isinstance(found, Ended):
        raise NotOpen(f"{found.id} is {found.status.replace('_', ' ')} already; nothing was changed.")
    return found


async def find(checkpointer: SqlCheckpointer, text: str) -> Item | Ended:
    """The item with this id, open or not, for display; an agent's request also by ``thread/question``.

    Raises `NotOpen` and `Ambiguous`.
    """
    try:
        return await _by_id(checkpointer, text)
    except NotOpen:
        found = await _by_names(checkpointer, text) if _is_text(text) else None
        if found is None:
            raise
        return found


async def _by_id(checkpointer: SqlCheckpointer, text: str) -> Item | Ended:
    if not _is_text(text):
        raise NotOpen(_unknown(text))
    exact = await _by_case_id(checkpointer, text)
    if exact is not None:
        return exact
    try:
        return await _by_key(checkpointer, text)
    except NotOpen:
        ended = await _ended_by_digits(checkpointer, text) or await _ended_by_id(checkpointer, text)
        if ended is None:
            raise
        return ended


async def _ended_by_digits(checkpointer: SqlCheckpointer, text: str) -> Ended | None:
    """What has ended and had this short id; None if there is nothing. Raises `Ambiguous`."""
    if _DIGITS.fullmatch(text) is None:
        return None
    room = 4 * max(NONCE_DIGITS - len(text), 0)
    nonces = (-1, -1)  # no nonce is so long
    if len(text) <= NONCE_DIGITS:
        nonces = (int(text, 16) << room, ((int(text, 16) + 1) << room) - 1)
    case_ids = (f"{_PREFIX}{text}", f"{_PREFIX}{text}g")
    asked, opened = await checkpointer.engine.read(partial(store.ended_by_digits, nonces, case_ids))
    found = [
        *map(_ended_request, map(request_of, asked)),
        *(_ended_case(service_case_of(it).case) for it in opened),
    ]
    if len(found) > 1:
        ids = " or ".join(each.id for each in found[:2])
        raise Ambiguous(f"{text} could be {ids}, among what has ended: use the whole id.")
    return found[0] if found else None


async def _ended_by_id(checkpointer: SqlCheckpointer, text: str) -> Ended | None:
    """The settled request with this whole id; None if there is none.

    The id is a digest of the request's names, so no index leads from it to the row: the keys of all settled requests
    are read, a page at a time.
    """
    if _CASE_ID.fullmatch(text) is None:
        return None
    engine, last = checkpointer.engine, None
    while page := await engine.read(partial(store.ended_keys, _MANY, last)):
        for key in page:
            if case_id_of(key.thread_id, key.question_id, key.round) == text:
                found = await engine.read(partial(store.request_round, key))
                return None if found is None else _ended_request(request_of(found))
        last = page[-1]
    return None


def _is_text(text: str) -> bool:
    """Whether a text can be an id: arguments that were not UTF-8 cannot."""
    return not any(0xD800 <= ord(char) <= 0xDFFF for char in text)


async def _by_case_id(checkpointer: SqlCheckpointer, text: str) -> Item | Ended | None:
    """A case by its whole id, and the request that it shows, where it shows one."""
    found = await checkpointer.engine.read(partial(store.case_by_id, text))
    if found is None:
        return None
    row = found.case
    if row.thread_id is not None and row.question_id is not None:
        asked = await _latest(checkpointer, row.thread_id, row.question_id)
        if asked is not None and asked.id == text:
            return asked if asked.row.status == "pending" else _ended_request(asked)
    opened = service_case_of(found)
    return opened if row.is_open and row.thread_id is None else _ended_case(opened.case)


async def _by_key(checkpointer: SqlCheckpointer, text: str) -> Item:
    """What is open and has this id, whole or as it was printed."""
    requests, cases = await checkpointer.engine.read(store.open_keys)
    keys = [*map(_Key.of_request, requests), *map(_Key.of_case, cases)]
    matches = [key for key in keys if key.is_named(text)]
    if len(matches) > 1:
        raise Ambiguous(_could_be(text, matches))
    if not matches:
        raise NotOpen(_no_id(text, [key for key in keys if key.is_asked_as(text)]))
    (key,) = matches
    if key.asked is not None:
        asked = await _latest(checkpointer, key.asked.thread_id, key.asked.question_id)
        is_it = asked is not None and (asked.id, asked.row.nonce) == (key.id, key.asked.nonce)
        if asked is not None and is_it and asked.row.status == "pending":
            return asked
    else:
        found = await checkpointer.engine.read(partial(store.case_by_id, key.id))
        if found is not None and found.case.is_open:
            return service_case_of(found)
    raise NotOpen(f"{key.digits[:SHOWN]} has been settled at this moment; nothing was changed.")


async def _by_names(checkpointer: SqlCheckpointer, text: str) -> AgentRequest | Ended | None:
    """An agent's request by ``thread/question``, where both parts may contain slashes; None if there is none."""
    found: list[AgentRequest] = []
    for place, char in enumerate(text):
        if char == "/":
            asked = await _latest(checkpointer, text[:place], text[place + 1 :])
            found += [] if asked is None else [asked]
    is_open = [asked for asked in found if asked.row.status == "pending"]
    if len(is_open) > 1:
        raise Ambiguous(_could_be(text, [_Key(it.id, it.digits, _key_of(it)) for it in is_open]))
    return is_open[0] if is_open else _ended_request(found[0]) if found else None


def _key_of(asked: AgentRequest) -> store.RequestKey:
    row = asked.row
    return store.RequestKey(row.thread_id, row.question_id, row.round, row.nonce)


def _no_id(text: str, called: Sequence[_Key]) -> str:
    """Why no open item has this id; if it is an agent's question id, how to display that request."""
    if not called:
        return _unknown(text)
    ids = shortened((key.id, key.digits) for key in called)
    named = " or ".join(f"askfirst show {ids[key.id]}" for key in called[:_NAMED])
    return (
        f"{visible(text)} is no id of ours: an agent calls a question so, and the next one may be called the same. "
        f"Look at it with {named}, and use the id that stands there."
    )


def _unknown(text: str) -> str:
    return f"nothing that is open has the id {visible(text)}: it was settled, or it never was; see askfirst pending."


async def _latest(checkpointer: SqlCheckpointer, thread_id: str, question_id: str) -> AgentRequest | None:
    found = await checkpointer.engine.read(partial(store.latest_request, thread_id, question_id))
    return None if found is None else request_of(found)


def short(item: Item | Ended) -> str:
    """The short id of a single item."""
    digits = digits_of(item.id, None) if isinstance(item, Ended) else item.digits
    return digits[:SHOWN]


def shortened(ids: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The short id of each whole id: just long enough to differ from all others."""
    known = sorted((digits, whole) for whole, digits in set(ids))
    digits = [each for each, _ in known]
    neighbours = zip(["", *digits], [*digits[1:], ""], strict=False)
    lengths = [
        max(SHOWN, *(_shared(rest, other) + 1 for other in pair))
        for rest, pair in zip(digits, neighbours, strict=False)
    ]
    return {whole: rest[:length] for (rest, whole), length in zip(known, lengths, strict=True)}


def _shared(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _could_be(text: str, matches: Sequence[_Key]) -> str:
    ids = shortened((key.id, key.digits) for key in matches)
    named = [
        ids[key.id] + (f" (thread {visible(key.asked.thread_id)})" if key.asked is not None else "")
        for key in matches[:_NAMED]
    ]
    more = f" and {len(matches) - _NAMED} more" if len(matches) > _NAMED else ""
    return f"{visible(text)} could be any of {', '.join(named)}{more}: use one of these ids."


def _ended_request(asked: AgentRequest) -> Ended:
    row = asked.row
    return Ended(
        asked.id,
        asked.kind,
        asked.prompt,
        row.status,
        seconds(row.settled_at),
        row.answered_by,
        row.via,
        decode_text(row.reason),
        ended_as(asked.case, row, row.settled_at or row.created_at),
    )


def _ended_case(case: Case) -> Ended:
    said = case.responded_by or case.claimed_by or {}
    by = said.get("email") or said.get("name")
    return Ended(
        case.case_id,
        case.type,
        case.prompt,
        case.status,
        case.ended_at,
        None if by is None else str(by),
        None,
        case.reason,
        case,
    )
