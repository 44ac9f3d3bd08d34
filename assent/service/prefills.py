"""Values that stand in a form's fields before anybody fills them in, fetched from where the asker has them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

import httpx2
from pydantic_core import from_json

from assent.errors import InvalidCallbackUrl
from assent.protocol import FormField
from assent.protocol.values import fault_of, is_empty
from assent.service.addresses import check_callback_url
from assent.service.case import Case
from assent.service.guarded import Guard, Reply
from assent.service.pages import read_field
from assent.service.spending import Spending

logger = logging.getLogger("assent.service")
SECONDS = 5.0
"""A person waits for the page meanwhile."""
MOST_BYTES = 20_000
MOST_AT_ONCE = 20
"""Of one page; the other fields stay empty."""


class Prefills:
    """Fetches the ``default_ref`` of fields with the review token; what it gets is kept nowhere.

    The address is the one that was named when the case was opened, and by whoever opened it: they know the
    token already. Nobody else is sent it, for redirects are not followed.
    """

    def __init__(self, guard: Guard, spending: Spending | None = None) -> None:
        self._guard = guard
        self._spending = spending

    async def fetch(self, case: Case, token: str, fields: Sequence[FormField]) -> dict[str, Any]:
        """The values by key, None for those that could not be had."""
        asked = [field for field in fields if field.default_ref is not None]
        now = asked[:MOST_AT_ONCE]
        if now and self._spending is not None and not await self._spending.prefills(case, len(now)):
            now = []
        found = await asyncio.gather(*(self._value(case, token, each) for each in now))
        return {field.key: None for field in asked} | dict(found)

    async def _value(self, case: Case, token: str, field: FormField) -> tuple[str, Any]:
        headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/plain",
            "accept-encoding": "identity",
            "user-agent": "assent",
        }
        try:
            where = check_callback_url(str(field.default_ref), development=self._guard.development)
            reply = await self._guard.exchange("GET", where, headers, seconds=SECONDS, at_most=MOST_BYTES)
            return field.key, _read(field, reply)
        except InvalidCallbackUrl as error:
            why = error.problem
        except ValueError as error:
            why = str(error)
        except (httpx2.TransportError, TimeoutError, OSError) as error:
            why = type(error).__name__
        logger.warning("the value of %s of case %s could not be fetched: %s", field.key, case.case_id, why)
        return field.key, None


def _read(field: FormField, reply: Reply) -> Any:
    """A field's value: JSON that is the value, or an object with it under ``value``; or plain text.

    Raises ``ValueError`` for what is no value of this field, without the value.
    """
    if reply.status != 200 or reply.body is None:
        raise ValueError(f"answered with {reply.status}" if reply.status != 200 else "too long")
    value: Any
    try:
        value = reply.body.decode()
        if reply.content_type.partition(";")[0].strip().lower() == "application/json":
            value = from_json(reply.body, allow_inf_nan=False)
    except ValueError:
        raise ValueError("neither JSON nor text") from None
    if isinstance(value, Mapping):
        value = cast("Mapping[str, Any]", value).get("value")
    if isinstance(value, str):
        value = read_field(field, [value])
    if is_empty(value) or fault_of(field, value) is not None:
        raise ValueError("no value of this field")
    return value
