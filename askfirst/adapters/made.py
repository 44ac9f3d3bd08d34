"""An object of another framework, or a function that makes it, as resumers take either."""

from __future__ import annotations

import inspect
from typing import Any


async def made(given: Any, kind: type[Any], *args: Any) -> Any:
    """The object that was given, or what the given function, async if need be, makes of ``args``."""
    if isinstance(given, kind):
        return given
    found = given(*args)
    return await found if inspect.isawaitable(found) else found
