"""A thread pool for work that would block the event loop, such as rendering a large page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

LOOP_CHARACTERS = 20_000
"""Work on up to this many characters runs on the event loop: a thread would take longer, and small work would queue
behind large work."""
THREADS = 4
SWITCH_SECONDS = 0.0005
"""The interpreter's switch interval for a process that only serves. With Python's default of 5 ms, every response
waits several intervals while a large page is rendered."""


def rendering_work(text: str) -> int:
    """The estimated work to render a JSON text, in characters.

    Regular expressions of a form have to be compiled, and non-ASCII text is searched for hidden characters, so both
    count more than their length.
    """
    return len(text) * (1 if text.isascii() else 4) + (LOOP_CHARACTERS if '"pattern"' in text else 0)


async def run_by_size(size: int, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run ``work`` and return its result: on the event loop if ``size`` (characters) is small, else in a thread."""
    if size <= LOOP_CHARACTERS:
        return work(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(), partial(work, *args, **kwargs))


@cache
def _threads() -> ThreadPoolExecutor:
    """The pool, for the life of the process.

    The loop's default pool is not used: it resolves names and hashes codes.
    """
    return ThreadPoolExecutor(THREADS, "askfirst_heavy")
