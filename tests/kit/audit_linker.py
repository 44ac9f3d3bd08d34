"""Processes that write acts and link the audit chain on one database at once; one may die while it links."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from functools import partial

from askfirst.store import audit, audit_chain
from askfirst.store.audit import Entry
from askfirst.store.audit_chain import link_all
from askfirst.store.statement import Transaction
from kit.stores import connect


async def work(kind: str, address: str, name: str, acts: int, dies: bool) -> None:
    """Write ``acts`` acts, and link the chain now and then; with ``dies``, be killed between two statements of
    linking."""
    async with connect(kind, address) as checkpointer:
        engine = checkpointer.engine
        for number in range(acts):
            entry = Entry("test.act", f"{name}-{number}", name, number)
            await engine.write(partial(audit.append, [entry]))
            if number % 5 == 4:
                await link_all(engine)
        if dies:
            await engine.write(dying)


def dying() -> Transaction[int]:
    """A transaction that links; its process is killed after it wrote its rows and the chain's head, before the
    commit."""
    linking = audit_chain.link()
    answer = None
    while True:
        try:
            statement, params = linking.send(answer)
        except StopIteration:
            os.kill(os.getpid(), signal.SIGKILL)
            raise
        answer = yield statement, params


if __name__ == "__main__":
    kind, address, name, acts, dies = json.loads(sys.argv[1])
    asyncio.run(work(kind, address, name, acts, dies))
