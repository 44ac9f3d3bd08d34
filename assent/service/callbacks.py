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
    """Makes the callbacks that are due."""

    def __init__(self, cases: Cases, sender: CallbackSender, secret: str | None) -> None:
        self._cases = cases
        self._sender = sender
        self._secret = secret

    async def work(self) -> bool:
        """Make what is due; True if there may be more."""
        if self._secret is None:
            return False
        now = self._cases.now()
        taken = await finish(self._cases.store.take_callbacks(now, now + TAKEN_MILLISECONDS, AT_ONCE))
        await asyncio.gather(*(self._make(row, self._secret) for row in taken))
        return len(taken) == AT_ONCE

    async def _make(self, row: CallbackRow, server_secret: str) -> None:
        secret = callback_secret(server_secret, row.key_id or "")
        body = row.body.encode()
        outcome = await self._sender.send(row.url, body, secret, message_id=row.callback_id)
        level = logging.INFO if outcome.kind == "sent" else logging.WARNING
        logger.log(level, "callback %s of case %s: %s", row.callback_id, row.case_id, outcome.detail)
        due_at = next_attempt(row.attempts, outcome, self._cases.now())
        await finish(self._cases.store.callback_done(row, due_at, outcome.kind))
