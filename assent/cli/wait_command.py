"""``assent wait``: call any service, and where it asks for a person, bring the person's answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

DELIVERIES = ("auto", "terminal", "qr", "desktop", "telegram", "email", "apprise")


def _content(value: str) -> bytes:
    """What an option says: itself, or with ``@`` what is in a file."""
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
        raise click.BadParameter(f"this is no JSON: {error}") from None


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
        raise click.BadParameter("this is no http or https address")
    return value


@click.command()
@click.argument("method")
@click.argument("url", callback=_url)
@click.option(
    "--json",
    "body",
    metavar="JSON",
    callback=_as_json,
    help="The request's body. @FILE reads it, @- from input.",
)
@click.option("--data", metavar="TEXT", callback=_as_bytes, help="The same, sent as it is.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=_headers,
    metavar="NAME:VALUE",
    help="A header, such as Authorization, which goes with the polls too. @FILE reads some, a line each: "
    "what stands on a command line others may see.",
)
@click.option(
    "--deliver",
    "deliveries",
    multiple=True,
    type=click.Choice(DELIVERIES),
    default=("auto",),
    show_default=True,
    help="How the link reaches the person. Again for several ways at once.",
)
@click.option(
    "--min-poll-interval",
    type=click.FloatRange(1, 300),
    metavar="SECONDS",
    help="Ask the service this often, where that is less than the usual 30 seconds.",
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
    """Call a service, and where it asks for a person, wait for their answer.

    The service is any that speaks HITL Protocol: it answers HTTP 202 with a link to a review page. The link is
    brought to the person. The result is printed to standard output as one object of JSON, and nothing else is;
    what happens meanwhile is told on standard error. Ctrl-C ends the wait and leaves the case open.

    \b
    A review: status (completed, expired or cancelled), action, data, case_id,
    rounds, responded_by, submission_context, default_action, reason.
    Anything else: status (no_review), http_status, body (JSON, or text).

    auto is a messenger or e-mail where one is configured, a QR code over SSH, the browser where there is a
    display, else the terminal. telegram needs TELEGRAM_BOT_TOKEN and TELEGRAM_CHAT_ID, email ASSENT_SMTP_URL and
    ASSENT_MAIL_TO, apprise ASSENT_APPRISE_URL.

    \b
    Exits with 0 if a person said yes (approve, confirm, select, submit or
    retry), or if nobody was asked and the service answered with less than 400;
    5 if a person said anything else: reject, edit, cancel, skip or abort;
    6 if nobody answered in time; 7 if the service cancelled; 1 if it went wrong.
    """
    from assent.cli.waiting import Call, wait_for

    if body is not None and data is not None:
        raise click.UsageError("--json and --data do not go together")
    call = Call(method.upper(), url, headers, body, data)
    context.exit(wait_for(call, deliveries, min_poll_interval))
