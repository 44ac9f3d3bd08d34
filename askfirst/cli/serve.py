"""``askfirst serve`` and ``askfirst purge``: the service on a port of this machine."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import uvicorn

from askfirst import limits
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.connection_limits import Doorkeeper, OncePerSecond, guarded
from askfirst.cli.output import database_url, on_database, say
from askfirst.cli.signing_key import SIGNING_KEY_VARIABLE, signing_key_in
from askfirst.errors import InvalidConfiguration, ServiceError
from askfirst.ids import BASE_URL_VARIABLE
from askfirst.limits import ADDRESS_CONNECTIONS, CONNECTIONS, LINK_DAYS, LONGEST_HOLD
from askfirst.service.configuration import MOST_LINK_DAYS, Configuration, read_configuration
from askfirst.service.worker_threads import SWITCH_SECONDS
from askfirst.smtp import SMTP_VARIABLE
from askfirst.store.inspect import open_keys

if TYPE_CHECKING:
    from fastapi import FastAPI

    from askfirst.workers.resumers import Resumer


FAILED = 1
_BACKLOG = 128
"""The listening socket's backlog: how many connections the system accepts before the server does."""
_OTHER_FILES = 3 * _BACKLOG + 64
"""Files that are open besides connections: the database, the log, and connections not yet looked at."""


def check_free(host: str, port: int) -> None:
    """Raise a ``ClickException`` in one sentence if nothing can listen there; the server would log it instead."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            _try(family, kind, protocol, address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise click.ClickException(
                f"port {port} of {host} is taken: end what listens there, or choose another with --port."
            ) from None
        raise click.ClickException(f"nothing can listen on {host}, port {port}: {error.strerror}.") from None


def _try(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> None:
    with socket.socket(family, kind, protocol) as trial:
        if os.name == "posix":  # as the server does; elsewhere it means that two may listen
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        trial.bind(address)


def listen(
    app: FastAPI,
    host: str,
    port: int,
    *,
    connections: int = limits.CONNECTIONS,
    per_address: int | None = None,
) -> None:
    """Serve until the process is stopped; where the server does not start, the process ends with 1.

    ``connections`` is how many there may be at a time, and ``per_address`` from one address; see `Doorkeeper`.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    connections = _within_open_files(connections)
    keeper = Doorkeeper(most=connections, per_address=per_address)
    quiet = OncePerSecond()
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(quiet)
    try:
        # The server's own access log would show whole addresses, tokens and all.
        uvicorn.run(
            app,
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            http=guarded(keeper),
            ws="none",
            h11_max_incomplete_event_size=limits.HEADER_BYTES,
            limit_concurrency=connections + 1,  # it counts the one that asks, too
            backlog=_BACKLOG,
        )
    except SystemExit as ended:  # uvicorn exits with 3, which has another meaning here
        raise SystemExit(FAILED if ended.code else 0) from None


def _within_open_files(connections: int) -> int:
    """The number of connections that the limit on open files allows, after raising that limit as far as possible."""
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(16, min(connections, soft - _OTHER_FILES))


def _defaults(context: click.Context, _: click.Parameter, file: Path | None) -> Configuration:
    """Read the configuration; what its ``[service]`` says are the defaults of the other options."""
    try:
        read = read_configuration(file)
    except InvalidConfiguration as error:
        raise click.ClickException("; ".join(f"{error.file}: {each}" for each in error.mistakes)) from None
    context.default_map = {**(context.default_map or {}), **read.service}
    return read


@click.command()
@click.option(
    "--config",
    "configuration",
    type=click.Path(dir_okay=False, path_type=Path),
    is_eager=True,
    callback=_defaults,
    help="The configuration file. Default: what ASKFIRST_CONFIG names, else askfirst.toml in the working directory.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(1, 65535), help="The port to listen on."
)
@click.option(
    "--base-url",
    envvar=BASE_URL_VARIABLE,
    show_envvar=True,
    help="The public URL of the service. Default: http://HOST:PORT.",
)
@click.option(
    "--name", default="Askfirst", show_default=True, help="Whose service it is: pages and messages say it."
)
@click.option(
    "--inline",
    is_flag=True,
    help="Give callers a submit token for each case, to send answers from a messenger. "
    "A caller can then approve its own case.",
)
@click.option(
    "--links",
    type=click.Choice(["caller", "service"]),
    default="caller",
    show_default=True,
    help="Who gets the links: the caller that opens a case, or only the service (deliveries, askfirst link).",
)
@click.option(
    "--link-days",
    type=click.FloatRange(0, MOST_LINK_DAYS, min_open=True),
    default=LINK_DAYS,
    show_default=True,
    help="For how many days a link is valid.",
)
@click.option(
    "--least-timeout", metavar="DURATION", help="The shortest time-out that a case may have, like 5m or PT5M."
)
@click.option(
    "--allow-default-approve",
    is_flag=True,
    help="Allow cases that are approved if nobody answers in time.",
)
@click.option(
    "--signing-key",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar=SIGNING_KEY_VARIABLE,
    show_envvar=True,
    help="Sign results with the private key in this file; the file is made if it does not exist.",
)
@click.option(
    "--push-heads",
    metavar="URL",
    envvar="ASKFIRST_PUSH_HEADS",
    show_envvar=True,
    help="Push the head of the audit trail to this URL when it has changed, at most once a minute.",
)
@click.option(
    "--with-worker",
    metavar="MODULE:RESUMERS",
    help="Also run a worker in this process, which resumes answered threads: see askfirst worker.",
)
@click.option(
    "--follow",
    "follow",
    multiple=True,
    metavar="KEY_ID=THREAD",
    help="Which threads a key may follow: an id, or a glob such as order-*. May be given several times.",
)
@click.option(
    "--hold-seconds",
    type=click.FloatRange(0, LONGEST_HOLD),
    default=5.0,
    show_default=True,
    help="For how many seconds a decision made on the page is held and can be undone; 0 switches it off.",
)
@click.option(
    "--risk-patterns",
    type=click.Path(exists=True, dir_okay=False),
    help="A file of patterns that mark dangerous lines of calls. Default: those that come with Askfirst.",
)
@click.option(
    "--quick-reason",
    "quick_reasons",
    multiple=True,
    metavar="TEXT",
    help="A reason to reject that the page offers for one tap, in place of its own. May be given up to 6 times.",
)
@click.option(
    "--language",
    default="en",
    show_default=True,
    metavar="TAG",
    help="The language of pages whose reader wants none that they have, and of the tools' sentences in messages.",
)
@click.option("--development", is_flag=True, help="Allow callbacks to this machine over http.")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Change a budget of a key, a link or an address, as in open_cases=50. May be given several times.",
)
@click.option(
    "--max-connections",
    default=CONNECTIONS,
    show_default=True,
    type=click.IntRange(1),
    help="The most connections at a time.",
)
@click.option(
    "--max-connections-per-address",
    type=click.IntRange(1),
    help=f"The most from one address. Default: {ADDRESS_CONNECTIONS}; no limit for this machine's own addresses.",
)
def serve(
    configuration: Configuration,
    host: str,
    port: int,
    base_url: str | None,
    signing_key: Path | None,
    budgets: tuple[str, ...],
    max_connections: int,
    max_connections_per_address: int | None,
    with_worker: str | None,
    follow: tuple[str, ...],
    **terms: Any,
) -> None:
    """Serve cases over HTTP until the process is stopped.

    Logs are lines of JSON on standard error. People are told of cases through the deliveries of the configuration:
    see askfirst config check --help.
    """
    from askfirst.service.app import create_app
    from askfirst.service.budgets import read_budgets
    from askfirst.service.observability import configure_logging
    from askfirst.service.thread_events import following

    if not base_url and host not in ("localhost", "127.0.0.1"):
        raise click.UsageError(
            f"--host {host} needs --base-url, the address at which people reach the service, "
            "as in https://reviews.example.com"
        )
    key = None if signing_key is None else signing_key_in(signing_key)
    resumers = None
    if with_worker is not None:
        from askfirst.cli.worker import load_resumers

        resumers = load_resumers(with_worker)
    try:
        may_follow = following(follow)
    except ValueError as error:
        raise click.UsageError(f"--follow {error}") from None
    try:
        app = create_app(
            database_url(),
            may_follow=may_follow,
            base_url=base_url or f"http://{host}:{port}",
            signing_key=key,
            budgets=read_budgets(budgets),
            deliver=list(configuration.places),
            schedule=configuration.schedule,
            **terms,
        )
    except ServiceError as error:
        said = str(error).replace("base_url", "--base-url", 1).replace("least_timeout", "--least-timeout", 1)
        raise click.ClickException(said) from None
    if resumers is not None:
        _add_worker(app, resumers)
    waiting = on_database(_waiting)  # so that an error is reported in a sentence, and not by the server
    check_free(host, port)  # likewise
    greet(base_url or f"http://{host}:{port}", waiting, can_mail=bool(os.environ.get(SMTP_VARIABLE)))
    configure_logging()
    listen(app, host, port, connections=max_connections, per_address=max_connections_per_address)


def _add_worker(app: FastAPI, resumers: Mapping[str, Resumer]) -> None:
    """Have a worker run as long as the service does."""
    from askfirst.workers.worker import Worker

    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def with_worker(served: FastAPI) -> AsyncGenerator[Any]:
        async with (
            lifespan(served) as state,
            checkpointer_from_url(database_url()) as store,
            Worker(store, resumers),
        ):
            yield state

    app.router.lifespan_context = with_worker


async def _waiting(checkpointer: SqlCheckpointer) -> int:
    """How many requests and cases are open in the database, which is up to date then."""
    requests, cases = await checkpointer.engine.read(open_keys)
    return len(requests) + len(cases)


def greet(base_url: str, waiting: int, *, can_mail: bool = True) -> None:
    """Say in a terminal where the service is reached, what waits, and what it lacks; programs read the log alone."""
    if not sys.stdout.isatty():
        return
    say(f"Askfirst is reached at {base_url}. Ctrl-C stops it; the log follows.")
    if waiting:
        requests = "1 request waits" if waiting == 1 else f"{waiting} requests wait"
        say(f"{requests} for a person. askfirst pending lists what waits, askfirst link ID prints a link.")
    else:
        say("Nothing waits for a person.")
    if not can_mail:
        say(
            f"{SMTP_VARIABLE} is not set: no codes are sent by e-mail, so nobody can approve what has critical risk."
        )


@click.command()
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
    from askfirst.service.cases import purge

    count = on_database(lambda checkpointer: purge(checkpointer, older_than_days), acts=True)
    click.echo(f"Deleted {count} case{'' if count == 1 else 's'}.")
