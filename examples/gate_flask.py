"""Flask behind the gate: the same as ``gate_fastapi``, without an event loop.

    flask --app gate_flask run

A `SyncGate` serves all threads of a process, and opens its store at its first use. So it also works in a server that
forks its workers, such as gunicorn. It needs the ``sqlite`` extra, and Flask.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, request

from askfirst import Denied, Pending, SyncGate

gate = SyncGate(os.environ.get("ASKFIRST_DATABASE_URL", "sqlite:///askfirst.db"), timeout="24h")
app = Flask(__name__)


def refund(order: str, cents: int) -> dict[str, Any]:
    """Pay money back to a customer."""
    return {"order": order, "cents": cents}


@app.post("/orders/<order>/refund")
def post_refund(order: str) -> tuple[dict[str, Any], int]:
    """Pay back, once a person has approved."""
    outcome = gate.call(
        refund,
        {"order": order, "cents": request.get_json()["cents"]},
        key=f"refund-{order}",
        wait=0,
        sentence="Pay back {cents:money:EUR} for order {order}",
    )
    if isinstance(outcome, Pending):
        return {"status": "pending", "case": outcome.case, "link": outcome.link}, 202
    if isinstance(outcome, Denied):
        return {"status": "denied", "reason": outcome.reason}, 403
    return outcome.result, 200
