"""Calling agents back when their cases have ended: taken from the store, tried, and tried again."""

from __future__ import annotations

import asyncio
import logging

from assent.service.callback_secrets import callback_secret
from assent.service.cases import Cases
from assent.service.outbound import CallbackSender, next_attempt
from assent.store.case_rows import CallbackRow
from assent.store.finish import finish

logger = logging.getLogger("assent.service")
TAKEN_MILLISECONDS = 120_000
"""How long a worker has for a callback; if it dies, another takes it up after that."""
AT_ONCE = 20


class CallbackWorker:
    """Makes the callbacks that are due, a number of them at a time; one that is slow keeps no other waiting."""

    def __init__(self, cases: Cases, sender: CallbackSender, secret: str | None) -> None:
        self._cases = cases
        self._sender = sender
        self._secret = secret
        self._under_way: set[asyncio.Task[None]] = set()

    async def work(self) -> bool:
        """Begin what is due and can be begun; True if there may be more."""
        free = AT_ONCE - len(self._under_way)
        if self._secret is None or not free:
            return False
        now = self._cases.now()
        taken = await finish(self._cases.store.take_callbacks(now, now + TAKEN_MILLISECONDS, free))
        for row in taken:
            task = asyncio.create_task(self._make(row, self._secret))
            self._under_way.add(task)
            task.add_done_callback(self._ended)
        return len(taken) == free

    async def stop(self) -> None:
        """Leave what is under way; whoever comes next takes it up again."""
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a callback could not be noted, and will be made again: %s", type(error).__name__)

    async def _make(self, row: CallbackRow, server_secret: str) -> None:
        secret = callback_secret(server_secret, row.key_id or "")
        body = row.body.encode()
        outcome = await self._sender.send(row.url, body, secret, message_id=row.callback_id)
        level = logging.INFO if outcome.kind == "sent" else logging.WARNING
        logger.log(level, "callback %s of case %s: %s", row.callback_id, row.case_id, outcome.detail)
        due_at = next_attempt(row.attempts, outcome, self._cases.now())
        await finish(self._cases.store.callback_done(row, due_at, outcome.kind))
