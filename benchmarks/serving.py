"""``python -m benchmarks.serving DATABASE CASES``: a service with open cases, and a bare route for comparison.

It prints its port, its key and the tokens of its cases as one line of JSON, and serves until it is terminated.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
from pydantic_core import to_json

from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.protocol import hash_token, issue_token
from askfirst.service import rate
from askfirst.service.app import create_app
from askfirst.service.budgets import Budgets
from askfirst.service.case import Case, poll_answer, row_of
from askfirst.service.keys import Keys
from askfirst.service.worker_threads import SWITCH_SECONDS
from askfirst.store import cases
from askfirst.store.case_rows import CaseRow, TokenRow
from askfirst.store.rows import fresh_write_id
from askfirst.store.statement import Transaction
from benchmarks.open_files import allow_many

rate.KEPT = rate.LIMIT.most  # the rate limit has to remember more polls here
NOW = 1_900_000_000.0
"""The time of the cases: far in the future, so that they stay open."""
BATCH = 5_000
NAMED = 5_000
"""The number of cases whose ids and tokens are printed."""


def case(number: int, key_id: str) -> Case:
    return Case(
        case_id=f"review_{number:032x}",
        type="approval",
        status="pending",
        version=1,
        prompt=f"May order {number} be shipped to the new address?",
        created_at=NOW,
        expires_at=NOW + 86_400,
        context={"order": number, "address": "1 Long Lane, Leeds"},
        key_id=key_id,
    )


def bare(body: bytes) -> FastAPI:
    """A route written by hand that always gives the same answer."""
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.get("/bare/{case_id}")
    async def status(case_id: str) -> Response:
        return Response(body, 200, {"ETag": '"1"', "Cache-Control": "no-cache"}, "application/json")

    return app


def insert(rows: Sequence[CaseRow], tokens: Sequence[dict[str, Any]]) -> Transaction[None]:
    yield cases.INSERT, [row._asdict() for row in rows]
    if tokens:
        yield cases.INSERT_TOKEN, list(tokens)


async def populate(store: SQLiteCheckpointer, key_id: str, count: int) -> list[tuple[str, str]]:
    """Insert open cases directly; returns the ids and review tokens of the first `NAMED`."""
    opened: list[tuple[str, str]] = []
    for begin in range(0, count, BATCH):
        made = [case(number, key_id) for number in range(begin, min(begin + BATCH, count))]
        rows = [row_of(each, fresh_write_id()) for each in made]
        new = [(each.case_id, issue_token("review")) for each in made if len(opened) < NAMED]
        hashed = [TokenRow(at, hash_token(token), "review")._asdict() for at, token in new]
        opened += new
        await store.engine.write(partial(insert, rows, hashed))
    return opened


async def main(database: str, count: int) -> None:
    allow_many()
    async with SQLiteCheckpointer(database) as store:
        key = await Keys(store.engine).issue("bench", by="bench")
        opened = await populate(store, key.key_id, count)
        # With the protocol named as TCP, asyncio switches Nagle's algorithm off, so that writes are sent at once.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(2048)
            port = listening.getsockname()[1]
            many = Budgets(open_cases=10**9, cases_per_hour=10**9, streams_per_key=10**9)
            service = create_app(store, base_url=f"http://127.0.0.1:{port}", budgets=many)
            by_hand = bare(to_json(poll_answer(case(0, key.key_id))))

            async def both(scope: Any, receive: Any, send: Any) -> None:
                is_bare = scope["type"] == "http" and scope["path"].startswith("/bare/")
                await (by_hand if is_bare else service)(scope, receive, send)

            config = uvicorn.Config(both, lifespan="on", log_config=None, access_log=False, backlog=2048)
            print(json.dumps({"port": port, "key": key.text, "cases": opened}), flush=True)
            await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_SECONDS)  # as `askfirst serve` does
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
