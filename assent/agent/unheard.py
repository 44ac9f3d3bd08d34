"""A run whose stream was left: nobody awaits it any more."""

from __future__ import annotations

import asyncio
from typing import Any

from assent.agent.emitter import logger


def tell_unheard(run: asyncio.Future[Any], thread_id: str) -> None:
    """Have it logged if such a run fails, now or later, for it is raised nowhere."""
    run.add_done_callback(lambda run: _log(run, thread_id))


def _log(run: asyncio.Future[Any], thread_id: str) -> None:
    if not run.cancelled() and (error := run.exception()) is not None:
        logger.error("thread %s: a run failed after its stream was left", thread_id, exc_info=error)
