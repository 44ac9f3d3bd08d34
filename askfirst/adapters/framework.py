"""Importing the framework of an adapter, and the framework's objects that users give, directly or as a function."""

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


async def instance_from(given: Any, kind: type[Any], *args: Any) -> Any:
    """``given`` itself if it is a ``kind``; else ``given`` is a function (sync or async), and its result for
    ``args``."""
    if isinstance(given, kind):
        return given
    found = given(*args)
    return await found if inspect.isawaitable(found) else found
