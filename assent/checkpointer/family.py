"""A thread and those of its subagents, which go with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from assent.errors import InvalidMessage
from assent.ids import child_thread_id
from assent.messages import AssistantMessage, decode
from assent.store.rows import AT_ONCE

if TYPE_CHECKING:
    from assent.store.store import Store


async def family(store: Store, thread_id: str) -> dict[str, int | None]:
    """The thread and all under it, callers first, each with its fence; None for one that there is not.

    A fork is a thread of its own.
    """
    found: dict[str, int | None] = {}
    coming = [thread_id]
    for member in coming:  # it grows as they are found
        found[member], said = await store.said(member)
        ids = [child_thread_id(member, call_id) for call_id in _called(said)]
        for start in range(0, len(ids), AT_ONCE):
            coming += await store.children(member, ids[start : start + AT_ONCE])
    return found


def _called(bodies: Sequence[str]) -> Iterator[str]:
    """The ids of the tool calls in what was said; what cannot be read has none, and can be deleted all the same."""
    for body in bodies:
        if '"tool_call"' in body:
            with suppress(InvalidMessage):
                yield from [call.id for call in cast(AssistantMessage, decode(body)).tool_calls]
