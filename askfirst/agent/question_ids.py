"""Where in a run a question is asked from, and the id under which a resumed run finds its answer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from pydantic_core import PydanticSerializationError

from askfirst.agent.context import current
from askfirst.checkpointer.base import Settlement
from askfirst.errors import HitlError
from askfirst.ids import new_id
from askfirst.requests import KINDS, HitlPayload, HitlRequest, StoredRequest, same_question


def is_about(question_id: str, tool_call_id: str) -> bool:
    """Whether a question belongs to this call: it has the call's id, or one that an `Asking` made of it."""
    return question_id == tool_call_id or question_id.startswith(f"{tool_call_id}:")


def is_from_body(question_id: str, tool_call_id: str) -> bool:
    """Whether a question was asked by the call's body, not at its gate."""
    return question_id.startswith(f"{tool_call_id}:body:")


_OF_A_PLACE = re.compile(rf":({'|'.join(kind for kind in KINDS if kind != 'approve')}):\d+(~\d+)?$")


def is_of_a_place(question_id: str) -> bool:
    """Whether `Asking` made this id from a place in a run; otherwise the id is random and belongs to one question."""
    return _OF_A_PLACE.search(question_id) is not None


def ambiguous(question_id: str | None, open_ids: Sequence[str] = ()) -> HitlError:
    """The error for an answer that fits several requests: without an id, ``open_ids`` are the candidates.

    With an id, several agents of a tree have a request under it: call ids are unique in one thread only.
    """
    question_id = question_id or (open_ids[0] if len(set(open_ids)) == 1 else None)
    if question_id is None:
        named = ", ".join(map(repr, open_ids))
        return HitlError(
            f"several requests are open ({named}), and an answer to one must not count for another: "
            "say which by respond(question_id=...)"
        )
    return HitlError(
        f"several requests are open under the id {question_id!r}, and an answer to one must not count for another: "
        "answer with agent.respond(digest=...), agent.resume_with(...) or checkpointer.settle(thread_id, ...), or "
        "resume the agent, which asks one by one"
    )


# An id names one question for ever, so that a late answer to an earlier question never answers a newer one.

ASKED_ANEW = "something else was asked in its place"
"""Why a channel cancelled a request that another one replaces; a run's step settles it as superseded instead."""


def first_id(payload: HitlPayload) -> str:
    """The id to try first: the tool call's for an approve, else one made from the place that asks.

    Outside of a call there is no such place, so no resumed run could ask again; the id is random.
    """
    if payload.gated_call is not None:
        return payload.gated_call.tool_call_id
    asking = current.get().asking
    return new_id() if asking is None else asking.question_id(payload.kind)


async def named(
    first: str, payload: HitlPayload, known: Callable[[str], Awaitable[StoredRequest | None]]
) -> str:
    """The id of a question: ``first``, or if another question has that, ``first~2`` and so on.

    ``known`` looks up the request under an id. A resumed run finds the same question under the same id.
    """
    question_id, number = first, 1
    while (found := await known(question_id)) is not None and not _is_still(found, payload):
        number += 1
        question_id = f"{first}~{number}"
    return question_id


def is_replaced(known: StoredRequest) -> bool:
    """Whether a request was replaced by another one; then it never counts again, even if the same is asked."""
    return known.status == "superseded" or (known.status == "cancelled" and known.reason == ASKED_ANEW)


def replaced_ids(request: HitlRequest) -> Iterator[str]:
    """The earlier ids that `named` counted up from; none for an approve, which keeps its call's id."""
    first, mark, number = request.question_id.rpartition("~")
    if mark and number.isdecimal() and request.payload.gated_call is None:
        yield first
        yield from (f"{first}~{earlier}" for earlier in range(2, int(number)))


def replaced(known: Mapping[str, StoredRequest], opened: Iterable[HitlRequest]) -> list[Settlement]:
    """Settlements for the pending requests that the ``opened`` ones replace."""
    earlier = [known[it] for request in opened for it in replaced_ids(request) if it in known]
    return [Settlement(it.question_id, "superseded") for it in earlier if it.status == "pending"]


def _is_still(known: StoredRequest, payload: HitlPayload) -> bool:
    """Whether a request asks the same question, and was not replaced."""
    if is_replaced(known):
        return False
    return same_question(known.request, payload) or same_question(known.request, _as_stored(payload))


def _as_stored(payload: HitlPayload) -> HitlPayload:
    """A question as it is read back from a store, where subclasses and NaN are not what they were."""
    asked = HitlRequest(question_id="", payload=payload, created_at=0)
    with suppress(PydanticSerializationError):
        return HitlRequest.model_validate_json(asked.model_dump_json(exclude_none=True)).payload
    return payload
