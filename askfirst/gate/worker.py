"""The worker of a gate: it continues, in this process, the calls that people have decided on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlError
from askfirst.workers.resumers import Resumer
from askfirst.workers.worker import Worker


class GateWorker(Worker):
    """A `Worker` that opens the gate's store before it looks for due continuations."""

    def __init__(
        self,
        checkpointer: SqlCheckpointer,
        ready: Callable[[], Awaitable[None]],
        resumers: Mapping[str, Resumer],
        **options: Any,
    ) -> None:
        super().__init__(checkpointer, resumers, **options)
        self._ready = ready

    async def __aenter__(self) -> Self:
        await self._ready()  # here, so that a store that cannot be opened is reported at once
        return await super().__aenter__()

    async def run(self) -> None:
        """Run what becomes due, until `stop`."""
        await self._ready()
        await super().run()

    async def run_due(self) -> int:
        """Run what is due now, and what becomes due meanwhile; returns how many continuations were run."""
        await self._ready()
        return await super().run_due()


def worker_of(
    store: Checkpointer,
    ready: Callable[[], Awaitable[None]],
    resumers: Mapping[str, Resumer],
    **options: Any,
) -> Worker:
    """The worker of a gate's store; raises `HitlError` for a store that keeps no continuations."""
    if not isinstance(store, SqlCheckpointer):
        raise HitlError(
            f"a worker needs a store that keeps continuations, and {type(store).__name__} does not: give the gate a "
            "database URL, or a checkpointer of Askfirst's own such as SQLiteCheckpointer"
        )
    return GateWorker(store, ready, resumers, **options)
