"""From what a person types to the one thing that they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.items import Asked, Item, asked_of, digits_of, opened_of
from assent.service.adoption import case_id_of
from assent.service.case import Case
from assent.store import open_items as store
from assent.store.rows import decode_text
from assent.visible import visible

NOT_OPEN = 4
SHOWN = 8
"""So many characters of a short id are printed at least, and have to be typed."""
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
    """What identifies something that is open: its whole id, and the digits that its short id begins with."""

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
        """Whether this is its id, or a part of it that was printed."""
        return text == self.id or (len(text) >= SHOWN and self.digits.startswith(text))

    def is_asked_as(self, text: str) -> bool:
        """Whether the agent knows it by this name, of which its model may have chosen a part."""
        asked = self.asked
        return asked is not None and text in (asked.question_id, f"{asked.thread_id}/{asked.question_id}")


async def find_open(checkpointer: SqlCheckpointer, text: str) -> Item:
    """What is open and has this id, whole or as it was printed. Raises `NotOpen` and `Ambiguous`.

    Nothing else names it. A question's id is the tool call's, which a model chooses: it could be made to equal what
    somebody else's id was printed as.
    """
    found = await _by_id(checkpointer, text)
    if isinstance(found, Ended):
        raise NotOpen(f"{found.id} is {found.status.replace('_', ' ')} already; nothing was changed.")
    return found


async def find(checkpointer: SqlCheckpointer, text: str) -> Item | Ended:
    """What has this id, open or not, to be looked at; an agent's request also by ``thread/question``.

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
    return exact if exact is not None else await _by_key(checkpointer, text)


def _is_text(text: str) -> bool:
    """Whether this can be anything's name: bytes that were no UTF-8 cannot."""
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
    opened = opened_of(found)
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
            return opened_of(found)
    raise NotOpen(f"{key.digits[:SHOWN]} has been settled at this moment; nothing was changed.")


async def _by_names(checkpointer: SqlCheckpointer, text: str) -> Asked | Ended | None:
    """An agent's request by ``thread/question``, in either of which there may be slashes; None if there is none."""
    found: list[Asked] = []
    for place, char in enumerate(text):
        if char == "/":
            asked = await _latest(checkpointer, text[:place], text[place + 1 :])
            found += [] if asked is None else [asked]
    is_open = [asked for asked in found if asked.row.status == "pending"]
    if len(is_open) > 1:
        raise Ambiguous(_could_be(text, [_Key(it.id, it.digits, _key_of(it)) for it in is_open]))
    return is_open[0] if is_open else _ended_request(found[0]) if found else None


def _key_of(asked: Asked) -> store.RequestKey:
    row = asked.row
    return store.RequestKey(row.thread_id, row.question_id, row.round, row.nonce)


def _no_id(text: str, called: Sequence[_Key]) -> str:
    """Why this names nothing; where an agent calls something so, how to look at that."""
    if not called:
        return _unknown(text)
    ids = shortened((key.id, key.digits) for key in called)
    named = " or ".join(f"assent show {ids[key.id]}" for key in called[:_NAMED])
    return (
        f"{visible(text)} is no id of ours: an agent calls a question so, and the next one may be called the same. "
        f"Look at it with {named}, and use the id that stands there."
    )


def _unknown(text: str) -> str:
    return f"nothing that is open has the id {visible(text)}: it was settled, or it never was; see assent pending."


async def _latest(checkpointer: SqlCheckpointer, thread_id: str, question_id: str) -> Asked | None:
    found = await checkpointer.engine.read(partial(store.latest_request, thread_id, question_id))
    return None if found is None else asked_of(found)


def short(item: Item | Ended) -> str:
    """Its short id, as far as it is shown where it stands alone."""
    digits = digits_of(item.id, None) if isinstance(item, Ended) else item.digits
    return digits[:SHOWN]


def shortened(ids: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Short ids, by whole ids: of the digits of each so many that no other one begins with them."""
    known = sorted((digits, whole) for whole, digits in set(ids))
    digits = [each for each, _ in known]
    neighbours = zip(["", *digits], [*digits[1:], ""], strict=False)
    lengths = [
        max(SHOWN, *(_shared(rest, other) + 1 for other in pair))
        for rest, pair in zip(digits, neighbours, strict=False)
    ]
    return {whole: rest[:length] for (rest, whole), length in zip(known, lengths, strict=True)}


def _shared(one: str, other: str) -> int:
    """With how many characters both begin."""
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
    )
