"""``askfirst continuations``: the threads whose requests were settled, and whether they were resumed."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import click

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.output import exact_json, on_database, say, span
from askfirst.errors import StoreError
from askfirst.workers.continuations import Continuation, Continuations


def as_json(known: Continuation) -> dict[str, Any]:
    """A continuation for ``--json``; times are seconds since 1970."""
    return {
        "thread_id": known.thread_id,
        "resumer": known.resumer,
        "state": known.state,
        "attempts": known.attempts,
        "error": known.error,
        "due_at": known.due_at,
        "settled_at": known.settled_at,
        "updated_at": known.updated_at,
    }


def in_words(known: Continuation, now: float) -> str:
    """The state of a continuation in one line."""
    match known.state:
        case "due":
            return f"answered {span(now - known.settled_at)} ago, not gone on yet"
        case "running":
            return f"going on, since {span(now - known.updated_at)}"
        case "failed":
            times = "once" if known.attempts == 1 else f"{known.attempts} times"
            then = "not tried again" if known.due_at is None else f"next in {span(known.due_at - now)}"
            return f"could not go on: {known.error}; tried {times}, {then}"
        case _:
            return f"gone on {span(now - known.updated_at)} ago"


async def _list(limit: int, with_done: bool, checkpointer: SqlCheckpointer) -> list[Continuation]:
    return await Continuations(checkpointer).list(limit, with_done=with_done)


async def _retry(thread_id: str, checkpointer: SqlCheckpointer) -> Continuation:
    return await Continuations(checkpointer).retry(thread_id)


@click.group(invoke_without_command=True)
@click.option("--all", "with_done", is_flag=True, help="Also list those that were resumed.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="The most lines to print."
)
@click.option(
    "--json", "is_json", is_flag=True, help="One JSON object on each line; times in seconds since 1970."
)
@click.pass_context
def continuations(context: click.Context, with_done: bool, limit: int, is_json: bool) -> None:
    """List the threads that have to be resumed, latest first.

    Each has a settled request, and was not resumed since. A thread is listed if it names a resumer:
    Agent(resumer=...). Workers resume the threads: see askfirst worker.
    """
    if context.invoked_subcommand is not None:
        return
    found = on_database(partial(_list, limit, with_done))
    now = time.time()
    for known in found:
        if is_json:
            click.echo(exact_json(as_json(known)))
        else:
            say(f"{known.thread_id}  {known.resumer}  {in_words(known, now)}")
    if not found and not is_json:
        say("No thread has to be resumed.")


@continuations.command()
@click.argument("thread_id", metavar="ID")
def retry(thread_id: str) -> None:
    """Make the continuation of the thread ID due now, whatever happened before; a worker then resumes it."""
    try:
        known = on_database(partial(_retry, thread_id))
    except StoreError as error:
        raise click.ClickException(f"{error}.") from None
    say(f"{known.thread_id} is due now, by {known.resumer}.")
