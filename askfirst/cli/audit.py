"""``askfirst audit``: the audit trail verified, exported, and its head pushed to another system."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.output import on_database
from askfirst.cli.signing_key import SIGNING_KEY_VARIABLE, signing_key_in
from askfirst.visible_text import escaped as escapes
from askfirst.visible_text import pieces, visible

if TYPE_CHECKING:
    from askfirst.service.audit import Verdict
    from askfirst.store.audit_chain import Head


NOT_WHOLE = 3


@click.group()
def audit() -> None:
    """The audit trail: one row for every act.

    That is every act on a request, a case, a grant or a key.
    """


@audit.command()
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.option(
    "--head",
    "kept",
    metavar="N:HASH",
    help="A head that was kept elsewhere: the trail must continue from it.",
)
@click.pass_context
def verify(context: click.Context, as_json: bool, kept: str | None) -> None:
    """Check the whole trail, and name every row that was altered, removed or inserted.

    Also names every request and case whose question or answer differs from the trail. Acts that are not
    linked into the hash chain yet are linked first.

    Exits with 3 if anything is found. Keep the number of rows and the hash of the head elsewhere: --head
    then shows later whether the trail was rewritten.
    """
    from askfirst.service.audit import verify
    from askfirst.store.audit_chain import link_if_possible

    head = None if kept is None else _head(kept)

    async def check(checkpointer: SqlCheckpointer) -> Verdict:
        await link_if_possible(checkpointer.engine)
        return await verify(checkpointer.engine, kept=head)

    verdict = on_database(check)
    click.echo(_as_json(verdict) if as_json else _as_text(verdict))
    context.exit(0 if verdict.is_whole else NOT_WHOLE)


@audit.command()
def export() -> None:
    """Write the trail to standard output, oldest row first, one line of JSON per row.

    On a terminal, control characters and invisible characters are written as JSON escapes.
    """
    from askfirst.service.audit import export

    shown = escaped if sys.stdout.isatty() else str

    async def write(checkpointer: SqlCheckpointer) -> None:
        async for line in export(checkpointer.engine):
            click.echo(shown(line))

    on_database(write)


@audit.command()
@click.argument("url")
@click.option(
    "--signing-key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar=SIGNING_KEY_VARIABLE,
    show_envvar=True,
    help="Sign the head with the private key in this file, a JWK of the curve P-256.",
)
def push(url: str, signing_key: Path | None) -> None:
    """Push the head of the trail to URL: the number of rows, and the hash of the last one.

    Use a place to which nobody who can write to the database can write. askfirst audit verify --head then
    checks that the trail continues from this head. The head is sent by POST, as JSON, over https.
    """
    from askfirst.service.audit import HeadPusher

    key = None if signing_key is None else signing_key_in(signing_key)
    head = on_database(lambda checkpointer: HeadPusher(checkpointer.engine, url, key).push())
    click.echo("There is no row yet." if head is None else f"Pushed {head.seq}:{head.hash}.")


def escaped(line: str) -> str:
    """A line of JSON that says the same, without any character that would act on a terminal or hide there."""
    return "".join(part.text if part.note is None else escapes(part.text) for part in pieces(line))


def _head(text: str) -> Head:
    from askfirst.store.audit_chain import Head

    found = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text)
    if found is None:
        raise click.UsageError(
            "--head is the number of rows, a colon and the head's hash, as in 17:9f86d0..."
        )
    return Head(int(found[1]), found[2])


def _as_text(verdict: Verdict) -> str:
    rows = "1 row" if verdict.rows == 1 else f"{verdict.rows} rows"
    lines = [f"The audit trail is whole: {rows}, head {verdict.head}."]
    if not verdict.is_whole:
        unnamed = verdict.fault_count - len(verdict.faults)
        more = [f"and {unnamed} more"] if unnamed else []
        found = [visible(fault.problem) for fault in verdict.faults]
        lines = ["The audit trail is not whole:", *found, *more]
    if verdict.unlinked:
        acts = "1 act is" if verdict.unlinked == 1 else f"{verdict.unlinked} acts are"
        lines.append(f"{acts} not linked yet: the head does not cover them.")
    if verdict.older:
        which = "1 request or case is" if verdict.older == 1 else f"{verdict.older} requests and cases are"
        lines.append(f"{which} older than the hashes of what was asked and answered, and not compared.")
    return "\n".join(lines)


def _as_json(verdict: Verdict) -> str:
    return json.dumps(
        {
            "is_whole": verdict.is_whole,
            "rows": verdict.rows,
            "head": verdict.head,
            "faults": [fault._asdict() for fault in verdict.faults],
            "fault_count": verdict.fault_count,
            "unlinked": verdict.unlinked,
            "older": verdict.older,
        }
    )
