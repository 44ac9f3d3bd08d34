"""``askfirst config check`` and ``askfirst notify test``: the configuration, and whether messages reach people."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from askfirst.cli.output import say
from askfirst.delivery.base import Notice
from askfirst.errors import AskfirstError, InvalidConfiguration
from askfirst.ids import new_id
from askfirst.service.configuration import Configuration, read_configuration
from askfirst.service.places import Places

_TEST_SECONDS = 60.0
FILE_OPTION = click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The configuration file. Default: what ASKFIRST_CONFIG names, else askfirst.toml in the working directory.",
)


def read_or_exit(file: Path | None) -> Configuration:
    """Read the configuration; with mistakes, print a line for each and end with 1."""
    try:
        return read_configuration(file)
    except InvalidConfiguration as error:
        for mistake in error.mistakes:
            say(f"{error.file}: {mistake}", err=True)
        raise SystemExit(1) from None


@click.group()
def config() -> None:
    """Check the configuration."""


@config.command()
@FILE_OPTION
def check(file: Path | None) -> None:
    """Read the configuration, and print what it contains, or every mistake with its line.

    The configuration is the file that --config or ASKFIRST_CONFIG names, else askfirst.toml in the working
    directory. Environment variables override the file. Nothing is sent, and no secret is printed.

    Exits with 1 if there is a mistake.
    """
    read = read_or_exit(file)
    say(f"Read {read.file or 'the environment: there is no file'}.")
    for place in read.places:
        who = ", ".join(sorted(f"{each.name} ({account})" for account, each in place.deciders.items()))
        say(f"{place.name}: {f'these may decide there: {who}' if who else 'a link, and no buttons'}")
    schedule = read.schedule
    if not read.places:
        say("There is no delivery: askfirst serve tells nobody.")
        return
    say(f"Told first: {', '.join(schedule.to or [place.name for place in read.places])}.")
    if schedule.then is not None:
        say(f"Told next: {schedule.then.place}.")


@click.group()
def notify() -> None:
    """Send messages to people."""


@notify.command("test")
@click.argument("name")
@FILE_OPTION
def try_out(name: str, file: Path | None) -> None:
    """Send a message to the delivery NAME, as in mail or slack:#ops, that says that it is a test.

    Exits with 1 if it could not be sent.
    """
    read = read_or_exit(file)
    body = "This is a test of Askfirst: requests for decisions will come here. There is nothing to decide."
    case_id = f"test_{new_id()}"
    notice = Notice("review", case_id, body, facts={"service": "Askfirst", "prompt": "a test"})

    async def send() -> None:
        place = Places(read.places).at(name)
        async with asyncio.timeout(_TEST_SECONDS):
            await place.delivery.send(notice)

    try:
        asyncio.run(send())
    except TimeoutError:
        raise click.ClickException(f"{name}: no answer within {_TEST_SECONDS:g} seconds.") from None
    except AskfirstError as error:
        raise click.ClickException(f"{error}.") from None
    say(f"Sent to {name}.")
