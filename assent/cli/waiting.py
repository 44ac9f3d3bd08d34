"""Calling a service from the command line, and waiting for the person it asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import click

from assent.cli.output import say
from assent.delivery.base import Delivery, Notice
from assent.delivery.choosing import delivery_named
from assent.delivery.several import Several
from assent.errors import MissingExtra
from assent.visible import visible

try:
    import httpx2

    from assent.client.client import HitlClient
    from assent.client.outcome import ReviewOutcome
    from assent.client.pace import USUAL
except ModuleNotFoundError as error:
    raise MissingExtra("waiting for a review", "client") from error

FAILED, SAID_NO, EXPIRED, CANCELLED = 1, 5, 6, 7
YES = ("approve", "confirm", "select", "submit", "retry")
_BAD_REQUEST = 400
_ON_STDERR = ("terminal", "qr")


@dataclass(frozen=True, slots=True)
class Call:
    """A request to be sent. ``body`` is a list with the JSON in it."""

    method: str
    url: str
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]], repr=False)
    body: list[Any] | None = field(default=None, repr=False)
    data: bytes | None = field(default=None, repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """As the HTTP client takes them."""
        given: dict[str, Any] = {"headers": self.headers}
        if self.body is not None:
            given["json"] = self.body[0]
        if self.data is not None:
            given["content"] = self.data
        return given


def wait_for(call: Call, deliveries: Sequence[str], min_poll_interval: float | None) -> int:
    """Send the request, wait if need be, print the result, and return the exit code."""
    deliver = [delivery_named(name) for name in dict.fromkeys(deliveries)]
    try:
        result = asyncio.run(_result(call, deliver, min_poll_interval))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        where = urlsplit(call.url).netloc.rpartition("@")[2]
        raise click.ClickException(f"{where} could not be reached: {type(error).__name__}.") from error
    if isinstance(result, ReviewOutcome):
        click.echo(json.dumps(_reviewed(result)))
        return _code(result)
    click.echo(json.dumps({"status": "no_review", "http_status": result.status_code, "body": _body(result)}))
    if result.status_code < _BAD_REQUEST:
        return 0
    say(f"Error: the service refused: HTTP {result.status_code}.", err=True)
    return FAILED


async def _result(
    call: Call, deliver: Sequence[Delivery], min_poll_interval: float | None
) -> httpx2.Response | ReviewOutcome:
    told = [] if any(_writes_here(each) for each in deliver) else [_tell]
    pace = USUAL if min_poll_interval is None else min_poll_interval
    async with HitlClient(deliver=[*deliver, *told], min_poll_interval=pace) as client:
        return await client.request(call.method, call.url, **call.options)


def _writes_here(delivery: Delivery) -> bool:
    if isinstance(delivery, Several):
        return any(_writes_here(each) for each in delivery.deliveries)
    return delivery.name in _ON_STDERR


async def _tell(notice: Notice) -> None:
    """What goes on, for whoever sits here; the link is for the person who gets it."""
    say(f"{notice.kind}: {visible(' '.join(notice.body.split()))} ({notice.case_id})", err=True)


def _reviewed(outcome: ReviewOutcome) -> dict[str, Any]:
    by, context = outcome.responded_by, outcome.submission_context
    return {
        "status": outcome.status,
        "action": outcome.action,
        "data": outcome.data,
        "case_id": outcome.case_id,
        "rounds": outcome.rounds,
        "responded_by": None if by is None else by.wire(),
        "submission_context": None if context is None else context.wire(),
        "default_action": outcome.default_action,
        "reason": outcome.reason,
    }


def _code(outcome: ReviewOutcome) -> int:
    if outcome.expired:
        return EXPIRED
    if outcome.cancelled:
        return CANCELLED
    return 0 if outcome.action in YES else SAID_NO


def _body(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.text
