"""``askfirst deliveries``: the messages to people, whether they were sent, and another try for those that failed."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import click

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.output import exact_json, on_database, say, span
from askfirst.clock import SystemClock, milliseconds, seconds
from askfirst.concurrency import finish
from askfirst.ids import fresh_write_id
from askfirst.store import deliveries as store
from askfirst.store.case_rows import DeliveryRow
from askfirst.store.inspect import GRACE_MILLISECONDS


def as_json(row: DeliveryRow) -> dict[str, Any]:
    """A message for ``--json``; times are seconds since 1970."""
    return {
        "delivery_id": row.delivery_id,
        "case_id": row.case_id,
        "place": row.place,
        "kind": row.kind,
        "state": row.state,
        "attempts": row.attempts,
        "error": row.error,
        "due_at": seconds(row.due_at),
        "since": seconds(row.since),
        "sent_at": seconds(row.sent_at),
    }


def in_words(row: DeliveryRow, now: float) -> str:
    """The state of a message in one line."""
    match row.state:
        case "sent":
            return f"sent {span(now - (seconds(row.sent_at) or now))} ago"
        case "done":
            return "sent, and told how it ended"
        case "dropped":
            return "not sent: there was nothing left to decide, or a later reminder took its place"
        case "failed":
            return f"sent, and could not be told how it ended: {row.error}; not tried again"
        case _:
            return _to_do(row, now)


def _to_do(row: DeliveryRow, now: float) -> str:
    what = "its end is to be told" if row.state in store.UPDATES else "to be sent"
    wait = (seconds(row.due_at) or now) - now
    when = f"next in {span(wait)}" if wait > 0 else f"due for {span(-wait)}"
    problem = f"{row.error}; tried {row.attempts} times, " if row.error else ""
    return f"{what}: {problem}{when}"


async def _list(
    case_id: str | None, every: bool, limit: int, checkpointer: SqlCheckpointer
) -> list[DeliveryRow]:
    if case_id is not None:
        return await checkpointer.engine.read(partial(store.of_case, case_id))
    if every:
        return await checkpointer.engine.read(partial(store.page, limit))
    before = milliseconds(SystemClock()) - GRACE_MILLISECONDS
    return await checkpointer.engine.read(partial(store.troubled, before, limit))


async def _retry(delivery_id: str, checkpointer: SqlCheckpointer) -> DeliveryRow | None:
    again = partial(store.retry, delivery_id, milliseconds(SystemClock()), fresh_write_id())
    return await finish(checkpointer.engine.write(again))


@click.group(invoke_without_command=True)
@click.option("--all", "every", is_flag=True, help="Also list those that were sent.")
@click.option("--case", "case_id", metavar="CASE", help="List the messages of one case.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="The most lines to print."
)
@click.option(
    "--json", "is_json", is_flag=True, help="One JSON object on each line; times in seconds since 1970."
)
@click.pass_context
def deliveries(context: click.Context, every: bool, case_id: str | None, limit: int, is_json: bool) -> None:
    """List the messages to people that were not sent.

    They failed, or no process sends them.

    askfirst serve sends messages, retries those that failed while the case is open, and updates them when
    the case is decided.
    """
    if context.invoked_subcommand is not None:
        return
    found = on_database(partial(_list, case_id, every, limit))
    now = time.time()
    for row in found:
        if is_json:
            click.echo(exact_json(as_json(row)))
        else:
            say(f"{row.delivery_id}  {row.case_id}  {row.place}  {row.kind}  {in_words(row, now)}")
    if not found and not is_json:
        say("There is none." if every or case_id else "Every message was sent.")


@deliveries.command()
@click.argument("delivery_id", metavar="ID")
def retry(delivery_id: str) -> None:
    """Send, or update, the message ID now; askfirst serve does the work."""
    row = on_database(partial(_retry, delivery_id))
    if row is None:
        raise click.ClickException(f"there is no message {delivery_id} that waits to be sent or updated.")
    say(f"{row.delivery_id} is due now, to {row.place}.")
