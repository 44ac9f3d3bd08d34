"""From what a person types to the one thing that they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.items import Asked, Item, asked_of, opened_of
from assent.service.adoption import case_id_of
from assent.service.case import Case
from assent.store import open_items as store
from assent.store.rows import decode_text
from assent.visible import visible

NOT_OPEN = 4
PREFIX = "review_"
SHORTEST = 4
"""So many characters of an id have to be typed at least."""
_SHOWN = 8
_NAMED = 5


class NotOpen(click.ClickException):
    """Nothing that is open has this id, or not any more; nothing was changed."""

    exit_code = NOT_OPEN


class Ambiguous(click.ClickException):
    """Several things are open that could be meant."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Something that waits for nobody any more, and how it ended; times are milliseconds since 1970."""

    id: str
    kind: str
    prompt: str
    status: str
    ended_at: int | None
    by: str | None
    via: str | None
    reason: str | None

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints of it; the answer is not in it."""
        names = ("id", "kind", "prompt", "status", "ended_at", "by", "via", "reason")
        return {"is_open": False, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True, slots=True)
class _Key:
    """What identifies something that is open."""

    id: str
    thread_id: str | None = None
    question_id: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What it is also called, besides its id."""
        if self.question_id is None:
            return ()
        return (self.question_id, f"{self.thread_id}/{self.question_id}")


async def find_open(checkpointer: SqlCheckpointer, text: str) -> Item:
    """What is open and meant by ``text``. Raises `NotOpen` and `Ambiguous`."""
    found = await find(checkpointer, text)
    if isinstance(found, Ended):
        raise NotOpen(f"{found.id} is {found.status.replace('_', ' ')} already; nothing was changed.")
    return found


async def find(checkpointer: SqlCheckpointer, text: str) -> Item | Ended:
    """What is meant by ``text``: the id of something, open or not, or what identifies something that is open.

    That is the beginning of its id, with or without ``review_``; for an agent's request also its question's id,
    alone or behind its thread's and a slash. Raises `NotOpen` and `Ambiguous`.
    """
    if any(0xD800 <= ord(char) <= 0xDFFF for char in text):  # bytes that were no UTF-8; no id has such
        raise NotOpen(_unknown(text))
    exact = await _by_case_id(checkpointer, text)
    if exact is not None:
        return exact
    found = await _by_key(checkpointer, text)
    return found if found is not None else await _by_names(checkpointer, text)


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
    opened = opened_of(found)
    return opened if row.is_open and row.thread_id is None else _ended_case(opened.case)


async def _by_key(checkpointer: SqlCheckpointer, text: str) -> Item | None:
    """What is open and matches."""
    requests, cases = await checkpointer.engine.read(store.open_keys)
    keys = [_Key(case_id_of(*key), key[0], key[1]) for key in requests] + [_Key(each) for each in cases]
    start = PREFIX + text.removeprefix(PREFIX)
    is_start = len(start) - len(PREFIX) >= SHORTEST
    matches = [key for key in keys if text in key.names or (is_start and key.id.startswith(start))]
    if len(matches) > 1:
        raise Ambiguous(_could_be(text, matches))
    if not matches:
        return None
    (key,) = matches
    if key.thread_id is not None and key.question_id is not None:
        asked = await _latest(checkpointer, key.thread_id, key.question_id)
        if asked is not None and asked.id == key.id and asked.row.status == "pending":
            if asked.row.round > 1 and text in key.names:
                raise Ambiguous(
                    f"{visible(text)} was asked {asked.row.round} times, perhaps differently: look at it with "
                    f"assent show {short(asked.id)} and answer it by that id."
                )
            return asked
    else:
        found = await checkpointer.engine.read(partial(store.case_by_id, key.id))
        if found is not None and found.case.is_open:
            return opened_of(found)
    raise NotOpen(f"{short(key.id)} has been settled at this moment; nothing was changed.")


async def _by_names(checkpointer: SqlCheckpointer, text: str) -> Ended:
    """An agent's request that has ended, by ``thread/question``."""
    for place, char in enumerate(text):
        if char == "/":
            asked = await _latest(checkpointer, text[:place], text[place + 1 :])
            if asked is not None:
                return _ended_request(asked)
    raise NotOpen(_unknown(text))


def _unknown(text: str) -> str:
    return f"nothing that is open has the id {visible(text)}: it was settled, or it never was; see assent pending."


async def _latest(checkpointer: SqlCheckpointer, thread_id: str, question_id: str) -> Asked | None:
    found = await checkpointer.engine.read(partial(store.latest_request, thread_id, question_id))
    return None if found is None else asked_of(found)


def short(id: str) -> str:
    """As much of an id as is shown where it stands alone."""
    return id.removeprefix(PREFIX)[:_SHOWN]


def shortened(ids: Iterable[str]) -> dict[str, str]:
    """The beginnings of ids, each long enough that no other one has it."""
    rests = sorted(each.removeprefix(PREFIX) for each in set(ids))
    neighbours = zip(["", *rests], [*rests[1:], ""], strict=False)
    lengths = [
        max(_SHOWN, *(_shared(rest, other) + 1 for other in pair))
        for rest, pair in zip(rests, neighbours, strict=False)
    ]
    return {PREFIX + rest: rest[:length] for rest, length in zip(rests, lengths, strict=True)}


def _shared(one: str, other: str) -> int:
    """With how many characters both begin."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _could_be(text: str, matches: Sequence[_Key]) -> str:
    ids = shortened(key.id for key in matches)
    named = [
        ids[key.id] + (f" (thread {visible(key.thread_id)})" if key.thread_id is not None else "")
        for key in matches[:_NAMED]
    ]
    more = f" and {len(matches) - _NAMED} more" if len(matches) > _NAMED else ""
    return f"{visible(text)} could be any of {', '.join(named)}{more}: use one of these ids."


def _ended_request(asked: Asked) -> Ended:
    row = asked.row
    return Ended(
        asked.id,
        asked.kind,
        asked.prompt,
        row.status,
        row.settled_at,
        row.answered_by,
        row.via,
        decode_text(row.reason),
    )


def _ended_case(case: Case) -> Ended:
    said = case.responded_by or {}
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
    )
