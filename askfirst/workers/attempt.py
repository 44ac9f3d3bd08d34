"""Running a taken continuation: its lease is renewed meanwhile, and its end is recorded."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Callable, Mapping

from askfirst.checkpointer.base import LEASE_SECONDS
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import Denied, Pending, ResumeLater, StoreError
from askfirst.visible_text import error_text
from askfirst.workers.continuations import Continuation, Continuations
from askfirst.workers.resumers import Resumer

logger = logging.getLogger("askfirst.workers")
MOST_ATTEMPTS = 10
"""After so many failures in a row a continuation is tried again only if somebody says so."""
_SLOWEST = 300.0

Retry = Callable[[Continuation, Exception], float | None]
"""In how many seconds a failed continuation is tried again; None if only an operator may retry it."""


def check_worker(resumers: Mapping[str, Resumer], concurrency: int) -> None:
    """Raise `ValueError` if a worker would have nothing to run: no resumer, or no place for a continuation."""
    if not resumers:
        raise ValueError("a worker needs at least one resumer")
    if concurrency < 1:
        raise ValueError(f"concurrency is at least 1, not {concurrency}")


def worker_name() -> str:
    """A unique name for a worker: host, process id and random digits."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def back_off(attempts: int) -> float:
    """Seconds until the next attempt after so many failures: exponential back-off with jitter."""
    return random.uniform(0.5, 1.0) * min(2.0**attempts, _SLOWEST)  # noqa: S311


def retry_by_attempts(taken: Continuation, error: Exception) -> float | None:
    """Try again after 2, 4, 8 … seconds, and after `MOST_ATTEMPTS` failures no more."""
    return None if taken.attempts >= MOST_ATTEMPTS else back_off(taken.attempts)


async def go_on(
    continuations: Continuations,
    taken: Continuation,
    resumer: Resumer,
    *,
    lease_seconds: float,
    retry: Retry = retry_by_attempts,
) -> Exception | None:
    """Run the resumer of a taken continuation, and record how it ended; returns the exception of the resumer, if any.

    Raises nothing but a cancellation. If the end cannot be recorded, the continuation is taken again when its lease
    has lapsed.
    """
    held = [taken]
    beating = asyncio.create_task(_hold(continuations, held, lease_seconds))
    error: Exception | None = None
    try:
        await resumer(taken)
    except (Denied, Pending):
        pass  # a person denied, or is asked again and the answer makes it due once more: this continuation is done
    except Exception as raised:
        error = raised
    finally:
        beating.cancel()
        await asyncio.wait({beating})
    try:
        await _record(continuations, held[0], error, retry)
    except StoreError as lost:
        logger.warning("how thread %s went on was not recorded; it is taken again: %s", taken.thread_id, lost)
    return error


async def _record(
    continuations: Continuations, taken: Continuation, error: Exception | None, retry: Retry
) -> None:
    if error is None:
        await continuations.done(taken)
    elif isinstance(error, ResumeLater):
        await continuations.later(taken, error.seconds)
    else:
        said = error_text(error)[:2000]
        logger.error("thread %s could not go on (attempt %d): %s", taken.thread_id, taken.attempts, said)
        logger.debug("how thread %s failed", taken.thread_id, exc_info=error)
        await continuations.failed(taken, said, retry(taken, error))


async def _hold(continuations: Continuations, held: list[Continuation], lease_seconds: float) -> None:
    """Renew the lease while the resumer runs."""
    while True:
        await asyncio.sleep(lease_seconds / 3)
        try:
            renewed = await continuations.renew(held[0], lease_seconds)
        except StoreError as error:
            logger.warning("the lease on thread %s could not be renewed: %s", held[0].thread_id, error)
            continue
        if renewed is None:
            return  # it was made due again: the worker that takes it finds out what is left to do
        held[0] = renewed


async def run_continuation(
    store: str | SqlCheckpointer,
    thread_id: str,
    resumers: Mapping[str, Resumer],
    *,
    lease_seconds: float = LEASE_SECONDS,
) -> Continuation | None:
    """Go on with one thread, from a job of any task queue: take its continuation, run the resumer, record the end.

    ``store`` is a database's URL or an open checkpointer. Gives the continuation as it is afterwards; None if there
    was nothing to take: it is done already, another worker has it, or it backs off after a failure. So a job that is
    delivered twice is harmless. A resumer that raises is recorded as failed and tried again by the next hand-over;
    the job need not be retried by its own queue. Raises `StoreError` if the database cannot be reached.
    """
    if isinstance(store, str):
        async with checkpointer_from_url(store) as opened:
            return await run_continuation(opened, thread_id, resumers, lease_seconds=lease_seconds)
    continuations = Continuations(store)
    taken = await continuations.take_one(thread_id, worker_name(), lease_seconds, list(resumers))
    if taken is None:
        return None
    await go_on(continuations, taken, resumers[taken.resumer], lease_seconds=lease_seconds)
    return await continuations.of(thread_id)
