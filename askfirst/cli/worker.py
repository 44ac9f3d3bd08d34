"""``askfirst worker``: a process that resumes the threads whose requests people have settled."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from askfirst.checkpointer.base import LEASE_SECONDS
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.output import on_database, say
from askfirst.workers.procrastinate_engine import ProcrastinateWorker
from askfirst.workers.resumers import Resumer
from askfirst.workers.worker import Worker


def load_resumers(named: str) -> Mapping[str, Resumer]:
    """The resumers that ``module:name`` stands for: a mapping from names to async functions."""
    module_name, colon, name = named.partition(":")
    if not colon or not module_name or not name:
        raise click.UsageError(f"{named!r} names no resumers; write module:name, such as app:resumers.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise click.UsageError(f"there is no module {module_name!r} here.") from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Mapping) or not found:
        raise click.UsageError(f"{named} is not a mapping from names to resumers.")
    for key, resumer in cast("Mapping[Any, Any]", found).items():
        if not isinstance(key, str) or not callable(resumer):
            raise click.UsageError(f"{named} has {key!r}, which is not the name of a resumer.")
    return cast("Mapping[str, Resumer]", found)


class _Options(NamedTuple):
    """The options of the command."""

    engine: str
    concurrency: int
    lease: float
    once: bool


def _made(
    resumers: Mapping[str, Resumer], options: _Options, checkpointer: SqlCheckpointer
) -> Worker | ProcrastinateWorker:
    kind = ProcrastinateWorker if options.engine == "procrastinate" else Worker
    return kind(checkpointer, resumers, concurrency=options.concurrency, lease_seconds=options.lease)


async def _work(resumers: Mapping[str, Resumer], options: _Options, checkpointer: SqlCheckpointer) -> None:
    made = _made(resumers, options, checkpointer)
    if options.once:
        count = await made.run_due()
        say(f"{count} threads were resumed." if count != 1 else "1 thread was resumed.")
        return
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, made.stop)
    say(f"Resuming answered threads of {', '.join(sorted(resumers))}. Ctrl-C ends it.", err=True)
    await made.run()


@click.command()
@click.argument("resumers", metavar="MODULE:RESUMERS")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="How many threads are resumed at the same time.",
)
@click.option(
    "--engine",
    type=click.Choice(["askfirst", "procrastinate"]),
    default="askfirst",
    show_default=True,
    help="What resumes the threads: the worker itself, or jobs of Procrastinate in the same PostgreSQL database.",
)
@click.option(
    "--lease",
    type=click.FloatRange(1, 3600),
    default=LEASE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="The length of the lease: after this time another worker takes over the threads of a dead one.",
)
@click.option("--once", is_flag=True, help="Resume what is due now, and exit.")
def worker(resumers: str, concurrency: int, engine: str, lease: float, once: bool) -> None:
    """Resume the threads whose requests people have settled.

    MODULE:RESUMERS is a mapping from names to resumers, such as app:resumers for `resumers = {"desk":
    agent_resumer(make_agent)}` in app.py. Any number of workers may run on one database; one of them at a
    time resumes a thread. With --engine procrastinate the worker hands due threads to Procrastinate as
    jobs, and runs these jobs; Procrastinate's tables are made if they are missing. After SIGTERM or Ctrl-C
    the worker finishes what is under way.
    """
    options = _Options(engine, concurrency, lease, once)
    on_database(partial(_work, load_resumers(resumers), options), lease_seconds=lease)
