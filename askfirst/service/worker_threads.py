"""Work that may take long, such as rendering a large page, in a thread pool beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

LIGHT = 20_000
"""Work on up to so many characters is done at once: a thread would take longer, and small work must not queue
behind large work."""
THREADS = 4
SWITCH_SECONDS = 0.0005
"""The interpreter's switch interval, for a process that only serves. With Python's 5 ms, every response waits several
intervals while a large page is rendered."""


def work_in(text: str) -> int:
    """How much work a JSON text is, in characters.

    Patterns of a form have to be compiled, and text beyond ASCII searched for hidden characters: both count more.
    """
    return len(text) * (1 if text.isascii() else 4) + (LIGHT if '"pattern"' in text else 0)


async def apart(size: int, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run ``work`` here if it is small, else in a thread, and return its result; ``size`` is in characters."""
    if size <= LIGHT:
        return work(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(), partial(work, *args, **kwargs))


@cache
def _threads() -> ThreadPoolExecutor:
    """A pool apart from the loop's own, which resolves names and hashes codes. It lasts as long as the process."""
    return ThreadPoolExecutor(THREADS, "askfirst_heavy")
