"""The framework of an adapter: its import, or the error that names the extra to install; and its objects, as users
give them."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from askfirst.errors import MissingExtra


@contextmanager
def needs(extra: str) -> Generator[None]:
    """Turn the failing import of a framework into `MissingExtra`, which names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "askfirst":
            raise
        raise MissingExtra(f"askfirst.adapters for {extra}", extra) from error


async def made(given: Any, kind: type[Any], *args: Any) -> Any:
    """``given`` if it is a ``kind``; else the result of the function ``given`` (sync or async) for ``args``."""
    if isinstance(given, kind):
        return given
    found = given(*args)
    return await found if inspect.isawaitable(found) else found
