"""The login of a host application, for tests: a header that a single sign-on proxy would set."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

ANN = {"name": "Ann", "email": "ann@example.com"}


async def by_header(request: Request) -> Any:
    """The user in the header of a single sign-on proxy."""
    said = request.headers.get("x-user")
    return None if said is None else json.loads(said)


def signed_in(user: Any) -> dict[str, str]:
    return {"x-user": json.dumps(user)}
