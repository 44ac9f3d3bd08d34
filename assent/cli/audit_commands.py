"""``assent audit``: whether the trail is whole, and what it says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.database import on_database

if TYPE_CHECKING:
    from assent.service.audit import Verdict

NOT_WHOLE = 3


@click.group()
def audit() -> None:
    """The record of every act on a request, a case or a key."""


@audit.command()
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.pass_context
def verify(context: click.Context, as_json: bool) -> None:
    """Check the whole trail, and name every row that was altered, removed or inserted.

    Exits with 3 if there is one. Keep the number of rows and the head's hash elsewhere: they show later
    that nobody has written the trail anew.
    """
    from assent.service.audit import verify

    verdict = on_database(lambda checkpointer: verify(checkpointer.engine))
    click.echo(_as_json(verdict) if as_json else _as_text(verdict))
    context.exit(0 if verdict.is_whole else NOT_WHOLE)


@audit.command()
def export() -> None:
    """Write the trail to standard output, oldest row first, a line of JSON each."""
    from assent.service.audit import export

    async def write(checkpointer: SqlCheckpointer) -> None:
        async for line in export(checkpointer.engine):
            click.echo(line)

    on_database(write)


def _as_text(verdict: Verdict) -> str:
    if verdict.is_whole:
        rows = "1 row" if verdict.rows == 1 else f"{verdict.rows} rows"
        return f"The audit trail is whole: {rows}, head {verdict.head}."
    unnamed = verdict.fault_count - len(verdict.faults)
    more = [f"and {unnamed} more"] if unnamed else []
    return "\n".join(["The audit trail is not whole:", *(fault.problem for fault in verdict.faults), *more])


def _as_json(verdict: Verdict) -> str:
    return json.dumps(
        {
            "is_whole": verdict.is_whole,
            "rows": verdict.rows,
            "head": verdict.head,
            "faults": [fault._asdict() for fault in verdict.faults],
            "fault_count": verdict.fault_count,
        }
    )
