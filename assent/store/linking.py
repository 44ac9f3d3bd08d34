"""Linking acts into the chain behind those who do them: soon, many at once, and in nobody's way."""

from __future__ import annotations

import asyncio
import logging

from assent.errors import StoreError
from assent.store import chain
from assent.store.engine import Engine
from assent.store.finish import finish

logger = logging.getLogger("assent.store")
EVERY = 64
"""After so many acts of this process the unlinked ones are linked, whosever they are."""
SECONDS = 1.0
"""And after this time, if there are fewer."""


class Linker:
    """Links acts while a store is open. What it leaves when that is closed is linked by whoever comes next."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._acts = 0
        self._due: asyncio.TimerHandle | None = None
        self._linking: asyncio.Future[int] | None = None
        self._failed = False

    def acted(self) -> None:
        """Acts have been written, or are about to be."""
        self._acts += 1
        if self._acts >= EVERY:
            self._link()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(SECONDS, self._link)

    def stop(self) -> None:
        """Link no more."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _link(self) -> None:
        self.stop()
        if self._linking is None:
            self._acts = 0
            self._linking = self._engine.write(chain.link, behind=True)
            self._linking.add_done_callback(self._linked)

    def _linked(self, job: asyncio.Future[int]) -> None:
        self._linking = None
        error = None if job.cancelled() else job.exception()
        if error is not None and not self._failed:
            logger.warning(
                "acts could not be linked into the audit trail, see assent audit verify: %s", error
            )
        self._failed = error is not None


async def link_all(engine: Engine) -> int:
    """Link whatever is not linked; returns how many acts that were. Some are left if another links just now."""
    count = 0
    if await engine.read(chain.is_unlinked):
        while linked := await finish(engine.write(chain.link)):
            count += linked
            if linked < chain.LINKED_AT_ONCE:
                break
    return count


async def link_if_possible(engine: Engine) -> None:
    """The same for those who did what they came for: it is done, whether or not it can be linked."""
    try:
        await link_all(engine)
    except StoreError as error:
        logger.warning("acts could not be linked into the audit trail, see assent audit verify: %s", error)
