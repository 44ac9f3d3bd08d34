"""Work that may take a while, such as a large page: done on threads of its own, so that it holds nobody else up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

LIGHT = 20_000
"""Of so many characters the work is done at once: going to a thread and back would take longer, and what is small
must not stand in line behind what is large."""
THREADS = 4
SWITCH_SECONDS = 0.0005
"""After so long a thread gives the interpreter to the others, in a process that serves and nothing else. Python's own
5 ms are waited for several times in every other answer while a large page is rendered."""


def work_in(text: str) -> int:
    """How much work JSON may be, in characters.

    A form with patterns is much, for they have to be compiled; so is text that may have hidden characters in it.
    """
    return len(text) * (1 if text.isascii() else 4) + (LIGHT if '"pattern"' in text else 0)


async def apart(size: int, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """What ``work`` returns: done here if there is little to do, else on a thread; ``size`` is in characters."""
    if size <= LIGHT:
        return work(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(), partial(work, *args, **kwargs))


@cache
def _threads() -> ThreadPoolExecutor:
    """Not the loop's own, which others need to look up names and to hash codes. They last as long as the process."""
    return ThreadPoolExecutor(THREADS, "assent_heavy")
