"""A case's events as they happen, for one who follows them and may have been away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from assent.service.cases import Cases

HEARTBEAT_SECONDS = 15.0
_FINAL = ("review.completed", "review.expired", "review.cancelled")


async def event_stream(
    cases: Cases,
    case_id: str,
    after: int,
    *,
    key_id: str | None = None,
    heartbeat: float = HEARTBEAT_SECONDS,
) -> AsyncIterator[bytes]:
    """Server-sent events behind ``after``, each once and in order; it ends after the last one there can be.

    With ``key_id`` it ends before the next one if that key has been revoked.
    """
    yield b"retry: 3000\n\n"
    with cases.followers.follow(case_id) as changed:
        while True:
            changed.clear()
            told = await cases.events_for(case_id, after, key_id)
            if told is None:
                return
            for seq, event, data in told:
                after = seq
                yield f"id: {seq}\nevent: {event}\ndata: {data}\n\n".encode()
                if event in _FINAL:
                    return
            try:
                async with asyncio.timeout(heartbeat):
                    await changed.wait()
            except TimeoutError:
                yield b": still here\n\n"
