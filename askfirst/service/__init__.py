"""The service side of HITL Protocol: cases over HTTP, the pages where people decide, and what follows."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from askfirst.errors import MissingExtra

_LIBRARIES = {"fastapi", "httpx2", "sqlalchemy", "starlette"}


@contextmanager
def needs_service() -> Generator[None]:
    """Turn the failing import of a library of the ``service`` extra into `MissingExtra`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        raise MissingExtra("the service", "service") from error
