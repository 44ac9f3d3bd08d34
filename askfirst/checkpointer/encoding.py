"""Encoding a checkpointer's values as rows of the store, and decoding rows, with checks in both directions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from askfirst.checkpointer.base import (
    RunRecord,
    Settlement,
    Step,
    StoredEffect,
    StoredRun,
    StoredThread,
    ThreadInfo,
)
from askfirst.clock import seconds, to_milliseconds
from askfirst.errors import InvalidMessage, InvalidStep, StoreError
from askfirst.ids import first_fence, fresh_nonce
from askfirst.messages import NO_USAGE, JsonObject, Message, UserMessage, decode, encode
from askfirst.requests import (
    HitlRequest,
    RequestStatus,
    StoredRequest,
    plain_answer,
)
from askfirst.store.rows import (
    ID_LENGTH,
    UNREADABLE,
    Loaded,
    RequestRow,
    Row,
    Writing,
    decode_request,
    decode_text,
    encode_request,
    fresh_write_id,
    unreadable,
)

logger = logging.getLogger("askfirst.checkpointer")
LARGEST_LIMIT = 2**31 - 1
_AT_ONCE = 500


def checked_id(name: str, value: Any) -> str:
    """An id that every database stores unchanged; raises `StoreError` for any other value."""
    try:
        return _checked(name, value)
    except TypeError:  # it cannot be hashed, so the cache refuses it
        raise _no_text(name, value) from None


def _no_text(name: str, value: Any) -> StoreError:
    return StoreError(f"{name} is a text, not {type(value).__name__}")


@lru_cache(4096)  # the same few ids are checked many times
def _checked(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _no_text(name, value)
    problem = None
    if not value:
        problem = "is empty"
    elif len(value) > ID_LENGTH:
        problem = f"has {len(value)} characters; the store takes up to {ID_LENGTH}"
    elif "\0" in value:
        problem = "has a NUL character in it"
    elif value[-1] == " ":
        problem = "ends with a space, which some databases ignore"
    elif not value.isascii() and value != value.encode(errors="ignore").decode():
        problem = "is not valid Unicode"
    if problem is not None:
        raise StoreError(f"{name} {value[:40]!r} {problem}")
    return value


def checked_limit(limit: Any) -> int:
    """The number of rows that a caller wants; raises `StoreError` unless it is a whole number of at least 1."""
    if type(limit) is not int or not 1 <= limit <= LARGEST_LIMIT:
        raise StoreError(f"limit is not a whole number from 1 to {LARGEST_LIMIT}")
    return limit


def writing(
    thread_id: str, step: Step, fence: int, acquire: bool, owner: str, now: int, lease_until: int
) -> Writing:
    """A step as rows; raises `InvalidStep` for a step that cannot be stored."""
    try:
        return Writing(
            checked_id("thread_id", thread_id),
            checked_id("run_id", step.run_id),
            owner,
            fence,
            # Every step moves the fence: a worker that loaded the thread before the step has not seen the step, and
            # must not write. A new thread gets a fence that no earlier thread with the same id had.
            fence + 1 if fence else step.first_fence or first_fence(),
            acquire,
            step.release,
            now,
            lease_until,
            fresh_write_id(),
            step.parent_thread_id,
            step.parent_fence,
            [(message.role, encode(message)) for message in step.messages] if step.messages else (),
            [_opened(request, step) for request in step.opened] if step.opened else (),
            [_settled_row(settlement) for settlement in step.settled] if step.settled else (),
            [_effect_row(effect) for effect in step.started] if step.started else (),
            [checked_id("tool_call_id", call_id) for call_id in step.ended] if step.ended else (),
            None if step.run is None else _run_row(step.run, now),
        )
    except (StoreError, InvalidMessage) as error:
        raise InvalidStep(thread_id, str(error)) from error


def check_size(rows: Writing, largest: int) -> None:
    """Raise `InvalidStep` for a message or a request that does not fit into a statement of ``largest`` bytes."""
    for text in (*[body for _, body in rows.messages], *[str(row["payload"]) for row in rows.opened]):
        if 4 * len(text) + _STATEMENT_BYTES > largest and (size := _size(text) + _STATEMENT_BYTES) > largest:
            raise InvalidStep(
                rows.thread_id, f"{size:,} bytes are more than the server's limit of {largest:,}"
            )


def _size(text: str) -> int:
    """The size in bytes of a text within a statement, where escaped characters take two."""
    return len(text.encode()) + sum(text.count(each) for each in "\"\\'")


_STATEMENT_BYTES = 10_000
"""An upper bound for the bytes of a statement without its values."""


def opened_row(request: HitlRequest) -> Row:
    """A request's row, without its thread and run."""
    payload, expires_at = request.payload, request.expires_at
    question_id = checked_id("question_id", request.question_id)
    try:
        encoded = encode_request(request)
    except PydanticSerializationError:
        raise StoreError(f"something in request {question_id!r} cannot be written as JSON") from None
    return {
        "question_id": question_id,
        "kind": payload.kind,
        "payload": encoded,
        "digest": payload.approval_digest,
        "created_at": to_milliseconds(request.created_at),
        "expires_at": to_milliseconds(expires_at),
        "nonce": fresh_nonce(),
    }


def _opened(request: HitlRequest, step: Step) -> Row:
    if step.resumer is None or step.resumes is None:
        return opened_row(request)
    resumer, resumes = checked_id("resumer", step.resumer), checked_id("resumes", step.resumes)
    return {**opened_row(request), "resumer": resumer, "resumes": resumes}


def _settled_row(settlement: Settlement) -> Row:
    answer = settlement.answer
    return {
        "question_id": checked_id("question_id", settlement.question_id),
        "status": settlement.status,
        "reason": settlement.reason,
        "answer": None if answer is None else to_json(plain_answer(answer)).decode(),
        "by": None if settlement.by is None else checked_id("by", settlement.by),
        "via": None if settlement.via is None else checked_id("via", settlement.via),
    }


def _effect_row(effect: StoredEffect) -> Row:
    return {
        "tool_call_id": checked_id("tool_call_id", effect.tool_call_id),
        "tool_name": checked_id("tool_name", effect.tool_name),
        "digest": effect.digest,
        "effect": effect.effect,
        "attempt": effect.attempt,
        "granted": effect.granted,
    }


def _run_row(run: RunRecord, now: int) -> Row:
    return {
        "agent_id": checked_id("agent_id", run.agent_id),
        "status": run.status,
        "iteration": run.iteration,
        "usage": "{}" if run.usage is NO_USAGE else run.usage.model_dump_json(exclude_defaults=True),
        "ended_at": None if run.status is None else now,
    }


def point_of(step: Step) -> str:
    """The name of a step's commit; see `POINTS`."""
    if step.started:
        return "effect.started"
    if step.ended:
        return "effect.ended"
    if step.opened:
        return "request.opened"
    if step.run is not None and step.run.status is not None:
        return "run.ended"
    if step.messages:
        return "prompt" if any(isinstance(it, UserMessage) for it in step.messages) else "message"
    return "step"


async def stored_thread(
    thread_id: str, loaded: Loaded, now: int, known: Sequence[Message] = ()
) -> StoredThread:
    """A thread from its rows; ``known`` are its first messages, from the cache.

    A long transcript is decoded in pieces, so that other tasks run in between.
    """
    messages = list(known)
    first = len(messages) - loaded.since
    for start in range(first, len(loaded.bodies), _AT_ONCE):
        if start > first:
            await asyncio.sleep(0)
        bodies = loaded.bodies[start : start + _AT_ONCE]
        messages += [_message(index, body) for index, body in enumerate(bodies, loaded.since + start)]
    latest = {row.question_id: row for row in loaded.requests}  # later rounds come later
    requests = sorted(latest.values(), key=lambda row: (row.created_at, row.question_id))
    return StoredThread(
        thread_id=thread_id,
        fence=loaded.fence,
        messages=messages,
        requests={row.question_id: stored_request(row) for row in requests},
        effects={row[0]: StoredEffect(*row) for row in loaded.effects},
        run=None if loaded.run is None else StoredRun(*loaded.run),
        lease_owner=loaded.lease_owner,
        lease_until=seconds(loaded.lease_until),
        is_leased=loaded.lease_owner is not None and loaded.lease_until > now,
        extra={} if loaded.extra is None else cast(JsonObject, from_json(loaded.extra)),
    )


def _message(index: int, body: str) -> Message:
    try:
        return decode(body)
    except InvalidMessage as error:
        path = f"[{index}].{error.path}" if error.path else f"[{index}]"
        raise InvalidMessage(path, error.problem) from None


def stored_request(row: RequestRow) -> StoredRequest:
    """A request from its row; raises `StoreError` if the row cannot be read."""
    try:
        return _stored_request(row)
    except UNREADABLE as error:
        raise unreadable(row, error) from error


def readable_requests(rows: Iterable[RequestRow]) -> list[StoredRequest]:
    """Requests of any threads from their rows. A row that cannot be read is left out and logged."""
    found: list[StoredRequest] = []
    for row in rows:
        try:
            found.append(stored_request(row))
        except StoreError as error:
            logger.warning("a request cannot be read and is left out: %s", error)
    return found


def _stored_request(row: RequestRow) -> StoredRequest:
    request = decode_request(row)
    answer = None if row.answer is None else request.payload.decode_answer(row.answer)
    if answer is None and row.status == "answered":
        raise ValueError("its status is answered, but it has no answer")
    return StoredRequest(
        request=request,
        thread_id=row.thread_id,
        run_id=row.run_id,
        status=cast(RequestStatus, row.status),
        answer=answer,
        reason=decode_text(row.reason),
        answered_by=row.answered_by,
        via=row.via,
        settled_at=seconds(row.settled_at),
        round=row.round,
    )


def thread_info(row: tuple[str, str | None, int, int, int]) -> ThreadInfo:
    """A thread in a list, from its row."""
    thread_id, parent, messages, created_at, updated_at = row
    return ThreadInfo(thread_id, parent, messages, seconds(created_at), seconds(updated_at))


def cursor_place(cursor: str | None) -> tuple[int, str, str]:
    """The sort key in a `StoredRequest.cursor`: created at, thread id, question id."""
    if cursor is None:
        return (-(2**62), "", "")
    if type(cursor) is not str:
        raise StoreError(f"{type(cursor).__name__} is not a cursor of a request")
    try:
        created_at, length, ids = cursor.split(":", 2)
        place = int(created_at), ids[: int(length)], ids[int(length) :]
        checked_id("thread_id", place[1])
        checked_id("question_id", place[2])
    except (ValueError, StoreError):
        place = None
    if place is None or not -(2**63) <= place[0] < 2**63:
        raise StoreError(f"{cursor[:80]!r} is not a cursor of a request")
    return place


def encode_body(body: JsonObject) -> str:
    """A body as JSON that can be read again; raises `StoreError` if it has no JSON form."""
    try:
        encoded = to_json(body)
        is_object = isinstance(from_json(encoded, allow_inf_nan=False), dict)
    except (ValueError, PydanticSerializationError) as error:
        raise StoreError(f"this body is not valid JSON: {error}") from None
    if not is_object:
        raise StoreError(f"a body is a JSON object, not a {type(body).__name__}")
    return encoded.decode()


def decode_body(body: str) -> JsonObject:
    """The body that `encode_body` encoded."""
    return cast(JsonObject, from_json(body))
