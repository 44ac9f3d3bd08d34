"""``askfirst link``: a link to the page where a request can be answered."""

from __future__ import annotations

from functools import partial

import click

from askfirst.account import os_account
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.find import Asked, NotOpen, find_open, only_open, short
from askfirst.cli.output import on_database
from askfirst.errors import CaseNotFound, ServiceError
from askfirst.limits import LINK_DAYS
from askfirst.service.case import review_url
from askfirst.service.cases import Cases
from askfirst.service.egress import check_base_url


def new_link(id: str | None, base_url: str, days: float) -> str:
    """A new link to the page of an open item, or of the only one. Raises `NotOpen` and `Ambiguous`."""
    try:
        check_base_url(base_url)
    except ServiceError as error:
        raise click.UsageError(str(error).replace("base_url", "--base-url", 1)) from None
    return on_database(partial(issue_link, id, base_url.rstrip("/"), days), acts=True)


async def issue_link(id: str | None, base_url: str, days: float, checkpointer: SqlCheckpointer) -> str:
    """A new link to the page of an open item in an open database, or of the only one. Raises `NotOpen`."""
    item = await only_open(checkpointer) if id is None else await find_open(checkpointer, id)
    cases = Cases(checkpointer)
    try:
        case = await cases.case_for(item.row) if isinstance(item, Asked) else item.case
        token = await cases.issue(case.case_id, by=os_account(), days=days)
    except CaseNotFound as error:
        raise NotOpen(f"{short(item)} has been settled at this moment; there is no link to it.") from error
    return review_url(base_url, case.case_id, token)


DEFAULT_BASE_URL = "http://127.0.0.1:8000"


@click.command()
@click.argument("id", required=False)
@click.option(
    "--base-url",
    envvar="ASKFIRST_BASE_URL",
    show_envvar=True,
    default=DEFAULT_BASE_URL,
    show_default=True,
    help="Where people reach the service, as askfirst serve was told.",
)
@click.option(
    "--days",
    type=click.FloatRange(0, 36_500, min_open=True),
    default=LINK_DAYS,
    show_default=True,
    help="How long the link is good for.",
)
@click.option("--revoke", is_flag=True, help="End all links to ID, and its submit tokens, and make none.")
def link(id: str | None, base_url: str, days: float, revoke: bool) -> None:
    """Print a new link to the page where ID can be answered, or revoke all that there are.

    ID is what askfirst pending prints; it can be left out if only one thing waits. Whoever has the link may
    answer, so give it to that person alone. Of links that were made before only hashes are kept, and none can be
    shown again: this makes one more, and the others go on working until their time is over. All of them lead to
    how it ended, once it has. The audit trail has a row that says who made it, and one that says who revoked them.

    A page is there while a service runs on this database: askfirst serve, or your own application with its
    address as --base-url.

    Exits with 4 if it is not open any more.
    """
    if revoke:
        if id is None:
            raise click.UsageError("--revoke needs the ID whose links are to end.")
        from askfirst.cli.keys import revoke_links

        click.echo(revoke_links(id))
        return

    click.echo(new_link(id, base_url, days))
