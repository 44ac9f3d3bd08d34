"""A Celery task behind the gate: it is retried until a person has decided, and its effect happens once.

    celery --app gate_celery worker

The task's id is the key. It stays the same when the task is retried, and when the broker delivers the task of a
killed worker to another worker; ``acks_late`` and ``reject_on_worker_lost`` make the broker do that. It
needs the ``sqlite`` extra, Celery and Redis.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery  # pyright: ignore[reportMissingTypeStubs]

from askfirst import Denied, Pending, SyncGate

gate = SyncGate(os.environ.get("ASKFIRST_DATABASE_URL", "sqlite:///askfirst.db"), timeout="24h")
redis = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:6379/0")
app: Any = Celery("gate_celery", broker=redis, backend=redis)
RETRY_SECONDS = float(os.environ.get("RETRY_SECONDS", "5"))


def pay_back(order: str, cents: int) -> str:
    """Pay money back to a customer."""
    return f"{cents / 100:.2f} EUR were sent for {order}"


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True, max_retries=None)
def refund(task: Any, order: str, cents: int) -> str:
    """Pay back, once a person has approved."""
    outcome = gate.call(
        pay_back,
        {"order": order, "cents": cents},
        key=f"celery-{task.request.id}",
        wait=0,
        sentence="Pay back {cents:money:EUR} for order {order}",
    )
    if isinstance(outcome, Pending):
        raise task.retry(countdown=RETRY_SECONDS)
    if isinstance(outcome, Denied):
        return f"not paid: {outcome.reason}"
    return outcome.result
