"""The service side of HITL Protocol: cases over HTTP, the review pages, deliveries, callbacks and the audit trail."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from askfirst.errors import MissingExtra

_LIBRARIES = {"fastapi", "httpx2", "sqlalchemy", "starlette"}


@contextmanager
def needs_service() -> Generator[None]:
    """Raise `MissingExtra` if an import in this context fails because the ``service`` extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        raise MissingExtra("the service", "service") from error
