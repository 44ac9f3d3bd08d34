"""Which event streams are open: so many for each key and each address, over all processes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from assent.clock import Clock, SystemClock
from assent.errors import OverBudget
from assent.ids import new_id
from assent.service.budgets import Budgets
from assent.store.case_store import CaseStore
from assent.store.finish import finish
from assent.store.streams import StreamRow

LEASE_MILLISECONDS = 120_000
"""How long a stream counts without its process having said that it is open still."""
RENEW_SECONDS = 30.0
_RETRY_MILLISECONDS = 15_000


class OpenStreams:
    """The streams of one process, counted with those of all others."""

    def __init__(self, store: CaseStore, budgets: Budgets, clock: Clock | None = None) -> None:
        self._store = store
        self._budgets = budgets
        self._clock = clock or SystemClock()
        self._process = new_id()
        self._open = 0

    async def begin(self, key_id: str, address: str | None) -> str:
        """A stream's id, to be ended with; raises `OverBudget`."""
        now = self._now()
        row = StreamRow(new_id(), self._process, key_id, address, now + LEASE_MILLISECONDS)
        most = self._budgets.streams_per_key, self._budgets.streams_per_address
        over = await finish(self._store.begin_stream(row, now, *most))
        if over is not None:
            raise OverBudget(over, _RETRY_MILLISECONDS)
        self._open += 1
        return row.stream_id

    async def end(self, stream_id: str) -> None:
        """A stream has ended."""
        self._open -= 1
        await finish(self._store.end_stream(stream_id))

    async def renew(self) -> bool:
        """Say that the streams are open still; False, for there is never more at once."""
        if self._open:
            await finish(self._store.renew_streams(self._process, self._now() + LEASE_MILLISECONDS))
        return False

    def _now(self) -> int:
        return round(self._clock.now() * 1000)


class CountedStream(StreamingResponse):
    """An answer that is a stream, which counts until it has been sent or nobody listens any more."""

    def __init__(
        self, content: AsyncIterator[bytes], streams: OpenStreams, stream_id: str, headers: dict[str, str]
    ) -> None:
        super().__init__(content, 200, headers, "text/event-stream")
        self._streams = streams
        self._stream_id = stream_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._streams.end(self._stream_id)
