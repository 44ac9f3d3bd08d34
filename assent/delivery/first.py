"""Waiting for whichever comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*each: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
    """Which of these ends first, and what it gives or raises; the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in each]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next((place, task.result()) for place, task in enumerate(tasks) if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
