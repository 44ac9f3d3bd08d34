"""Calling agents back when their cases have ended: taken from the store, tried, and tried again for days."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from assent.errors import InvalidCallbackUrl
from assent.service.addresses import check_callback_url
from assent.service.breakers import Breakers
from assent.service.callback_secrets import callback_secret
from assent.service.cases import Cases
from assent.service.outbound import CallbackSender, Outcome, next_attempt, patience_ends
from assent.store.callbacks import AT_ONCE
from assent.store.case_rows import CallbackRow
from assent.store.finish import finish

logger = logging.getLogger("assent.service")
TAKEN_MILLISECONDS = 120_000
"""How long a worker has for a callback; if it dies, another takes it up after that."""


class CallbackWorker:
    """Makes the callbacks that are due, a number of them at a time and of each key a few of these.

    So one that is slow keeps no other waiting, and a key whose receivers are silent no other key. A host that
    fails again and again is left alone for a while (`Breakers`).
    """

    def __init__(
        self,
        cases: Cases,
        sender: CallbackSender,
        secret: str | None,
        *,
        on_outcome: Callable[[str], None] | None = None,
    ) -> None:
        self._cases = cases
        self._sender = sender
        self._secret = secret
        self._on_outcome = on_outcome
        self._breakers = Breakers()
        self._under_way: dict[asyncio.Task[None], str] = {}

    async def work(self) -> bool:
        """Begin what is due and can be begun; True if there may be more."""
        free = AT_ONCE - len(self._under_way)
        if self._secret is None or not free:
            return False
        now, busy = self._cases.now(), Counter(self._under_way.values())
        taken = await finish(self._cases.store.take_callbacks(now, now + TAKEN_MILLISECONDS, free, busy))
        for row in taken:
            task = asyncio.create_task(self._make(row, self._secret))
            self._under_way[task] = row.key_id or ""
            task.add_done_callback(self._ended)
        return bool(taken)

    async def stop(self) -> None:
        """Leave what is under way; whoever comes next takes it up again."""
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a callback could not be noted, and will be made again: %s", type(error).__name__)

    async def _make(self, row: CallbackRow, server_secret: str) -> None:
        names = self._names(row)
        again = self._breakers.wait(names, self._cases.now())
        if again is not None and again < patience_ends(row):
            await finish(self._cases.store.callback_done(row, again, row.outcome, counts=False))
            return
        secret = callback_secret(server_secret, row.key_id or "")
        body = row.body.encode()
        outcome = await self._sender.send(row.url, body, secret, message_id=row.callback_id)
        self._note(names, outcome)
        due_at = next_attempt(row, outcome, self._cases.now())
        kind = "gave_up" if outcome.kind == "retry" and due_at is None else outcome.kind
        self._say(row, kind, outcome.detail)
        await finish(self._cases.store.callback_done(row, due_at, kind))

    def _names(self, row: CallbackRow) -> tuple[str, ...]:
        """The breakers on the way: of the host, and of what this key has there.

        That nobody can connect to a host is true for all keys. What a host answers is not: a key could have it
        answer with errors at an address of its own, and nobody else would be called back there.
        """
        try:
            where = check_callback_url(row.url, development=True)
        except InvalidCallbackUrl:
            return ()
        host = f"{where.host}:{where.port}"
        return host, f"{host} {row.key_id}"

    def _note(self, names: tuple[str, ...], outcome: Outcome) -> None:
        if outcome.kind != "retry":
            self._breakers.worked(names)
        elif names:
            self._breakers.failed(names[0 if outcome.unreachable else 1], self._cases.now())

    def _say(self, row: CallbackRow, kind: str, detail: str) -> None:
        """Tell the log how it went, and of those that are tried again once only."""
        if self._on_outcome is not None:
            self._on_outcome(kind)
        level = logging.INFO if kind == "sent" else logging.WARNING
        if kind == "retry" and row.attempts > 1:
            level = logging.DEBUG
        said = f"{detail}; it was tried for days, and is given up" if kind == "gave_up" else detail
        logger.log(level, "callback %s of case %s: %s", row.callback_id, row.case_id, said)
