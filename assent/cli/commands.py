"""All commands of ``assent``, and those that stand alone."""

from __future__ import annotations

import click

from assent import __version__
from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.answer_commands import answer, cancel
from assent.cli.audit_commands import audit
from assent.cli.database import database_url, on_database
from assent.cli.doctor_command import doctor
from assent.cli.key_commands import keys
from assent.cli.link_command import link
from assent.cli.pending_commands import pending, show
from assent.cli.wait_command import wait
from assent.errors import ServiceError


@click.group(
    epilog="""
\b
ASSENT_DATABASE_URL names the database: sqlite:///assent.db (the default, in
the working directory), postgresql://... or mysql://...
ASSENT_SECRET, of 32 characters or more, signs callbacks.

\b
Exit codes: 0 done, 1 it could not be done, 2 wrong usage,
3 the audit trail is not whole, 4 the request is not open, or not any more.
Of assent wait: 5 the person said no, 6 nobody answered in time, 7 the service
cancelled. 130 Ctrl-C. What went wrong is one sentence on standard error.
"""
)
@click.version_option(__version__, message="%(version)s")
def assent() -> None:
    """Ask people for what agents may not decide alone."""


@assent.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(1, 65535), help="The port to listen on."
)
@click.option(
    "--base-url",
    envvar="ASSENT_BASE_URL",
    show_envvar=True,
    help="Where people and agents reach the service. Default: http://HOST:PORT.",
)
@click.option("--development", is_flag=True, help="Allow callbacks to this machine over http.")
def serve(host: str, port: int, base_url: str | None, development: bool) -> None:
    """Serve cases over HTTP until the process is stopped.

    Logs are lines of JSON on standard error.
    """
    from assent.cli.listening import check_free, listen
    from assent.service.app import create_app
    from assent.service.logging import configure_logging

    if not base_url and host not in ("localhost", "127.0.0.1"):
        raise click.UsageError(
            f"--host {host} needs --base-url, the address at which people reach the service, "
            "as in https://reviews.example.com"
        )
    try:
        app = create_app(
            database_url(), base_url=base_url or f"http://{host}:{port}", development=development
        )
    except ServiceError as error:
        raise click.ClickException(str(error).replace("base_url", "--base-url", 1)) from None
    on_database(_reached)  # what is wrong with it is said in a sentence, not by the server
    check_free(host, port)  # so is this
    configure_logging()
    listen(app, host, port)


async def _reached(checkpointer: SqlCheckpointer) -> None:
    """It is open, and its schema is up to date."""


@assent.command()
@click.option(
    "--older-than-days",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Keep cases that ended more recently than this.",
)
def purge(older_than_days: float) -> None:
    """Delete cases that ended long ago, with their answers.

    The audit trail is kept.
    """
    from assent.service.cases import purge

    count = on_database(lambda checkpointer: purge(checkpointer, older_than_days))
    click.echo(f"Deleted {count} case{'' if count == 1 else 's'}.")


for command in (answer, audit, cancel, doctor, keys, link, pending, show, wait):
    assent.add_command(command)
