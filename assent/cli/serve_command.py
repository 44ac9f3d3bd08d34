"""``assent serve``: the service on a port of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.database import database_url, on_database
from assent.errors import ServiceError
from assent.limits import ADDRESS_CONNECTIONS, CONNECTIONS

if TYPE_CHECKING:
    pass


@click.command()
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
@click.option(
    "--inline", is_flag=True, help="Let agents carry answers from messengers, with a token of each case."
)
@click.option(
    "--links",
    type=click.Choice(["caller", "service"]),
    default="caller",
    show_default=True,
    help="Who gets the links: whoever opens a case, or only you, by assent link.",
)
@click.option(
    "--link-days",
    type=click.FloatRange(0, 36_500, min_open=True),
    default=7.0,
    show_default=True,
    help="How long a link is good for.",
)
@click.option(
    "--least-timeout", metavar="DURATION", help="How long a case is open at least, like 5m or PT5M."
)
@click.option(
    "--allow-default-approve",
    is_flag=True,
    help="Allow cases that count as approved when nobody has answered.",
)
@click.option(
    "--signing-key",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="ASSENT_SIGNING_KEY",
    show_envvar=True,
    help="Sign results with the private key in this file; it is made if there is none.",
)
@click.option(
    "--push-heads",
    metavar="URL",
    envvar="ASSENT_PUSH_HEADS",
    show_envvar=True,
    help="Push the audit trail's head there whenever it has moved, once a minute at most.",
)
@click.option("--development", is_flag=True, help="Allow callbacks to this machine over http.")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="NAME=NUMBER",
    help="How much a key, a link or an address may use, as in open_cases=50. May be given several times.",
)
@click.option(
    "--max-connections",
    default=CONNECTIONS,
    show_default=True,
    type=click.IntRange(1),
    help="How many connections there may be at a time.",
)
@click.option(
    "--max-connections-per-address",
    type=click.IntRange(1),
    help=f"How many from one address. Default: {ADDRESS_CONNECTIONS}, and no limit for this machine's own.",
)
def serve(
    host: str,
    port: int,
    base_url: str | None,
    signing_key: Path | None,
    budgets: tuple[str, ...],
    max_connections: int,
    max_connections_per_address: int | None,
    **terms: Any,
) -> None:
    """Serve cases over HTTP until the process is stopped.

    Logs are lines of JSON on standard error.
    """
    from assent.cli.listening import check_free, listen
    from assent.cli.signing_key import signing_key_in
    from assent.service.app import create_app
    from assent.service.budgets import read_budgets
    from assent.service.logging import configure_logging

    if not base_url and host not in ("localhost", "127.0.0.1"):
        raise click.UsageError(
            f"--host {host} needs --base-url, the address at which people reach the service, "
            "as in https://reviews.example.com"
        )
    key = None if signing_key is None else signing_key_in(signing_key)
    try:
        app = create_app(
            database_url(),
            base_url=base_url or f"http://{host}:{port}",
            signing_key=key,
            budgets=read_budgets(budgets),
            **terms,
        )
    except ServiceError as error:
        said = str(error).replace("base_url", "--base-url", 1).replace("least_timeout", "--least-timeout", 1)
        raise click.ClickException(said) from None
    on_database(_reached)  # what is wrong with it is said in a sentence, not by the server
    check_free(host, port)  # so is this
    configure_logging()
    listen(app, host, port, connections=max_connections, per_address=max_connections_per_address)


async def _reached(checkpointer: SqlCheckpointer) -> None:
    """It is open, and its schema is up to date."""
