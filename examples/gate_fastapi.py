"""FastAPI behind the gate: an endpoint answers 202 while a person decides, and a later request gets the result.

    uvicorn gate_fastapi:app

The order's number is the key. So a client may repeat its request, also after a crash of this process: a person is
asked once, and the money is paid once. It needs the ``service`` extra.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from askfirst import Denied, Gate, Pending

gate = Gate(os.environ.get("ASKFIRST_DATABASE_URL", "sqlite:///askfirst.db"), timeout="24h")


@asynccontextmanager
async def opened(_: FastAPI) -> AsyncGenerator[None]:
    """Keep the gate's store open while the application runs."""
    async with gate:
        yield


app = FastAPI(lifespan=opened)


class Refund(BaseModel):
    """What a client asks for."""

    cents: int


class Receipt(BaseModel):
    """What was paid."""

    order: str
    cents: int


async def refund(order: str, cents: int) -> Receipt:
    """Pay money back to a customer."""
    return Receipt(order=order, cents=cents)


@app.post("/orders/{order}/refund")
async def post_refund(order: str, wanted: Refund) -> Any:
    """Pay back, once a person has approved."""
    outcome = await gate.call(
        refund,
        {"order": order, "cents": wanted.cents},
        key=f"refund-{order}",
        wait=0,
        sentence="Pay back {cents:money:EUR} for order {order}",
    )
    if isinstance(outcome, Pending):
        return JSONResponse({"status": "pending", "case": outcome.case, "link": outcome.link}, 202)
    if isinstance(outcome, Denied):
        return JSONResponse({"status": "denied", "reason": outcome.reason}, 403)
    return outcome.result
