"""Answers of any HTTP library, as far as the client needs to know them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from assent.client.caller import Caller


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The status of an answer, where it came from, its JSON (None if it has none), and who asked."""

    status: int
    url: str
    body: Any = field(repr=False)
    caller: Caller


async def read_answer(response: object) -> HttpAnswer:
    """Look at an answer of httpx2, httpx, requests or aiohttp, or at one that is like theirs.

    It has ``status_code`` or ``status``, ``url``, and ``json()``, which may be async; and perhaps ``request``
    (or ``request_info``) with the ``headers`` that were sent. The body is read only of a 202. Raises
    ``TypeError`` for anything else.
    """
    answer: Any = response
    status = getattr(answer, "status_code", None)
    status = getattr(answer, "status", None) if status is None else status
    if not isinstance(status, int) or not hasattr(answer, "url"):
        raise TypeError(f"a {type(response).__name__} is no HTTP response: it has no status or no url")
    body: Any = None
    if status == 202:
        body = await _json(answer)
    request = getattr(answer, "request", None) or getattr(answer, "request_info", None)
    headers: Any = getattr(request, "headers", None)
    caller = Caller() if headers is None else Caller.of(headers)
    return HttpAnswer(status, str(answer.url), body, caller)


async def _json(answer: Any) -> Any:
    """Its JSON; None for what is no JSON, and so asks nobody anything."""
    if hasattr(answer, "aread"):
        await answer.aread()  # a stream of httpx2 or httpx
    try:
        body = answer.json()
        return await body if inspect.isawaitable(body) else body
    except ValueError:
        return None
    except Exception as error:
        if type(error).__name__ == "ContentTypeError":  # aiohttp's word for it
            return None
        raise
