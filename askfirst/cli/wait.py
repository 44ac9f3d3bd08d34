"""``askfirst wait``: call any service, and where it asks for a person, wait for the answer."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from askfirst.cli.output import say
from askfirst.delivery.base import Delivery, Notice
from askfirst.delivery.registry import NAMES, delivery_named
from askfirst.delivery.several import Several
from askfirst.errors import MissingExtra
from askfirst.visible_text import visible

try:
    import httpx2

    from askfirst.client.client import HitlClient
    from askfirst.client.outcome import ReviewOutcome
    from askfirst.client.polling import USUAL
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
        """The request as keyword arguments of the HTTP client."""
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
    """Progress on standard error, without the link, which is for the person who gets it."""
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


def _content(value: str) -> bytes:
    """The value of an option: the text itself, or after ``@`` the content of a file."""
    if not value.startswith("@"):
        return value.encode(errors="surrogateescape")
    try:
        return sys.stdin.buffer.read() if value == "@-" else Path(value[1:]).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{value[1:]}: {error.strerror}") from None


def _as_json(_context: click.Context, _option: click.Parameter, value: str | None) -> list[Any] | None:
    """The JSON, in a list of its own: it may be null."""
    if value is None:
        return None
    try:
        return [json.loads(_content(value))]
    except ValueError as error:
        raise click.BadParameter(f"this is not JSON: {error}") from None


def _as_bytes(_context: click.Context, _option: click.Parameter, value: str | None) -> bytes | None:
    return None if value is None else _content(value)


def _headers(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    for value in values:
        for line in _content(value).decode(errors="replace").splitlines():
            name, colon, text = line.partition(":")
            if not name.strip() or not colon or not line.isascii():
                raise click.BadParameter("a header is NAME: VALUE, in ASCII")  # not quoted: it may be a key
            headers.append((name.strip(), text.strip()))
    return headers


def _url(_context: click.Context, _argument: click.Parameter, value: str) -> str:
    try:
        at = urlsplit(value)
        reached = at.scheme in ("http", "https") and bool(at.hostname) and at.port != 0
    except ValueError:
        reached = False
    if not reached:
        raise click.BadParameter("this is not an http or https address")
    return value


@click.command()
@click.argument("method")
@click.argument("url", callback=_url)
@click.option(
    "--json",
    "body",
    metavar="JSON",
    callback=_as_json,
    help="The request's body, as JSON. @FILE reads it from a file, @- from standard input.",
)
@click.option("--data", metavar="TEXT", callback=_as_bytes, help="The body as it is, instead of --json.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=_headers,
    metavar="NAME:VALUE",
    help="A header, such as Authorization; it is sent with the polls too. "
    "@FILE reads headers from a file, one per line: other users of the machine may see a command line.",
)
@click.option(
    "--deliver",
    "deliveries",
    multiple=True,
    type=click.Choice(NAMES),
    default=("auto",),
    show_default=True,
    help="How the link reaches the person. May be given several times.",
)
@click.option(
    "--min-poll-interval",
    type=click.FloatRange(1, 300),
    metavar="SECONDS",
    help="Poll the service at this interval, if it is shorter than the usual 30 seconds.",
)
@click.pass_context
def wait(
    context: click.Context,
    method: str,
    url: str,
    body: list[Any] | None,
    data: bytes | None,
    headers: list[tuple[str, str]],
    deliveries: tuple[str, ...],
    min_poll_interval: float | None,
) -> None:
    """Call a service; if it asks a person, wait for the answer.

    The service is any that implements HITL Protocol: it answers HTTP 202 with a link to a review page. The
    link is delivered to the person. Standard output gets the result as one object of JSON, and nothing
    else; progress goes to standard error. Ctrl-C ends the wait and leaves the case open.

    \b
    A review: status (completed, expired or cancelled), action, data, case_id,
    rounds, responded_by, submission_context, default_action, reason.
    Anything else: status (no_review), http_status, body (JSON, or text).

    auto is a messenger or e-mail where one is configured, a QR code over SSH, the browser where there is a
    display, else the terminal. telegram needs TELEGRAM_BOT_TOKEN and TELEGRAM_CHAT_ID, slack
    SLACK_BOT_TOKEN and SLACK_CHANNEL, email ASKFIRST_SMTP_URL and ASKFIRST_MAIL_TO, apprise
    ASKFIRST_APPRISE_URL, teams ASKFIRST_TEAMS_URL.

    \b
    Exits with 0 if a person said yes (approve, confirm, select, submit or
    retry), or if nobody was asked and the HTTP status is below 400;
    5 if a person said anything else: reject, edit, cancel, skip or abort;
    6 if nobody answered in time; 7 if the service cancelled the case; 1 if the
    command failed.
    """

    if body is not None and data is not None:
        raise click.UsageError("--json and --data do not go together")
    call = Call(method.upper(), url, headers, body, data)
    context.exit(wait_for(call, deliveries, min_poll_interval))
