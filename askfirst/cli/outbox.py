"""``askfirst outbox``: a process that posts due continuations to a task queue or workflow engine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import click

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.output import on_database, say
from askfirst.errors import InvalidSecret
from askfirst.workers.outbox import SECRET_VARIABLE, TAKE_SECONDS, Outbox


def _secret(file: Path | None) -> str:
    text = file.read_text().strip() if file is not None else os.environ.get(SECRET_VARIABLE, "")
    if not text:
        raise click.UsageError(
            f"the webhooks are signed: set {SECRET_VARIABLE} to whsec_ and base64, or give --secret-file."
        )
    return text


async def _post(
    make: Callable[[SqlCheckpointer], Outbox], host: str, once: bool, checkpointer: SqlCheckpointer
) -> None:
    try:
        made = make(checkpointer)
    except (InvalidSecret, ValueError) as error:
        raise click.UsageError(f"{error}.") from None
    if once:
        say(f"{await made.run_due()} posted.")
        return
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, made.stop)
    say(f"Telling {host} what has to go on. Ctrl-C ends it.", err=True)
    await made.run()


@click.command()
@click.option(
    "--url",
    required=True,
    envvar="ASKFIRST_OUTBOX_URL",
    show_envvar=True,
    help="The URL to which webhooks are posted.",
)
@click.option("--resumers", metavar="NAME,NAME", help="Post only threads of these resumers. Default: all.")
@click.option(
    "--secret-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"A file with the secret that signs the webhooks. Default: {SECRET_VARIABLE}.",
)
@click.option(
    "--take-within",
    type=click.FloatRange(1, 86_400),
    default=TAKE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Post a thread again if it was accepted and no job has begun after this time.",
)
@click.option("--once", is_flag=True, help="Post what is due now, and exit.")
def outbox(url: str, resumers: str | None, secret_file: Path | None, take_within: float, once: bool) -> None:
    """Post a signed webhook for each thread to be resumed.

    It is for a task queue or a workflow engine. A webhook is a CloudEvent (JSON), signed as in Standard
    Webhooks with a secret that begins with whsec_. A 2xx response accepts it. After any other response it
    is posted again, with growing pauses. The receiver calls askfirst.workers.run_continuation, which takes
    the thread under a lease and records how that ended, so a webhook that comes twice does no harm. After
    SIGTERM or Ctrl-C the command finishes what is under way.
    """
    names = None if resumers is None else [name.strip() for name in resumers.split(",") if name.strip()]
    made = partial(Outbox, url=url, secret=_secret(secret_file), resumers=names, take_seconds=take_within)
    on_database(partial(_post, made, urlsplit(url).hostname or "?", once))
