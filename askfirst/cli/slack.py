"""``askfirst slack``: the manifest of the Slack app, and a check of what an installed app lacks."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path

import click

from askfirst.cli.configuration import FILE_OPTION, read_or_exit
from askfirst.cli.output import say
from askfirst.delivery.slack import SlackDelivery
from askfirst.delivery.slack_api import BASE_URL
from askfirst.delivery.slack_check import manifest as app_manifest
from askfirst.delivery.slack_check import missing
from askfirst.errors import AskfirstError


@click.group()
def slack() -> None:
    """Set up the Slack app."""


@slack.command()
@click.option("--name", default="Askfirst", show_default=True, help="The app's name in Slack.")
@click.option(
    "--request-url",
    help="The URL to which Slack posts signed requests. Without it, the app uses Socket Mode.",
)
def manifest(name: str, request_url: str | None) -> None:
    """Print the app's manifest, to paste at api.slack.com/apps: Create New App, From a manifest, JSON."""
    if request_url is not None and not request_url.startswith("https://"):
        raise click.UsageError(f"--request-url is an https URL that Slack can reach, not {request_url!r}.")
    say(json.dumps(app_manifest(name, request_url=request_url), indent=2))


@slack.command()
@FILE_OPTION
def check(file: Path | None) -> None:
    """Say what is missing: tokens, scopes, Socket Mode, membership of the channel.

    Checks every delivery of kind slack that askfirst serve would use, from the configuration file and from
    environment variables, which override the file. If there is none, it reads SLACK_BOT_TOKEN,
    SLACK_APP_TOKEN or SLACK_SIGNING_SECRET, and SLACK_CHANNEL. Nothing is sent to the channel, and no token
    is printed.

    Exits with 1 if something is missing.
    """
    deliveries = {
        place.name: place.delivery
        for place in read_or_exit(file).places
        if isinstance(place.delivery, SlackDelivery)
    }
    try:
        found = asyncio.run(_missing(deliveries))
    except AskfirstError as error:
        raise click.ClickException(f"{error}.") from None
    for each in found:
        say(each, err=True)
    if found:
        raise SystemExit(1)
    say("Slack: messages can be sent, and buttons are heard.")


async def _missing(deliveries: Mapping[str, SlackDelivery]) -> list[str]:
    """What is missing of each delivery, or of what the environment has; named where there are several."""
    if not deliveries:
        return await missing(
            os.environ.get("SLACK_BOT_TOKEN"),
            os.environ.get("SLACK_APP_TOKEN"),
            os.environ.get("SLACK_CHANNEL"),
            signing_secret=os.environ.get("SLACK_SIGNING_SECRET"),
            base_url=os.environ.get("SLACK_API", BASE_URL),
        )
    return [
        f"{name}: {each}" if len(deliveries) > 1 else each
        for name, delivery in deliveries.items()
        for each in await delivery.missing()
    ]
