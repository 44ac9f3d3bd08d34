"""``askfirst slack``: the manifest of the Slack app, and what is missing of it."""

from __future__ import annotations

import asyncio
import json
import os

import click

from askfirst.cli.output import say
from askfirst.delivery.slack_api import BASE_URL
from askfirst.delivery.slack_check import manifest as app_manifest
from askfirst.delivery.slack_check import missing
from askfirst.errors import AskfirstError


@click.group()
def slack() -> None:
    """Set up the Slack app."""


@slack.command()
@click.option("--name", default="Askfirst", show_default=True, help="What the app is called in Slack.")
@click.option(
    "--request-url", help="For signed requests: where Slack reaches the service. Without it, Socket Mode."
)
def manifest(name: str, request_url: str | None) -> None:
    """Print the app's manifest, to paste at api.slack.com/apps: Create New App, From a manifest, JSON."""
    say(json.dumps(app_manifest(name, request_url=request_url), indent=2))


@slack.command()
def check() -> None:
    """Say what is missing: tokens, scopes, Socket Mode, membership of the channel.

    Reads SLACK_BOT_TOKEN, SLACK_APP_TOKEN or SLACK_SIGNING_SECRET, and SLACK_CHANNEL. Nothing is sent to the channel,
    and no token is printed.

    Exits with 1 if something is missing.
    """
    environ = os.environ
    check = missing(
        environ.get("SLACK_BOT_TOKEN"),
        environ.get("SLACK_APP_TOKEN"),
        environ.get("SLACK_CHANNEL"),
        signing_secret=environ.get("SLACK_SIGNING_SECRET"),
        base_url=environ.get("SLACK_API", BASE_URL),
    )
    try:
        found = asyncio.run(check)
    except AskfirstError as error:
        raise click.ClickException(f"{error}.") from None
    for each in found:
        say(each, err=True)
    if found:
        raise SystemExit(1)
    say("Slack: messages can be sent, and buttons are heard.")
