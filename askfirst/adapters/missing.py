"""A framework that is not installed: one sentence that names the extra."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

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
