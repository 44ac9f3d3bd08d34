"""``askfirst link``: a link to the page where a request can be answered."""

from __future__ import annotations

from functools import partial

import click

from askfirst.account import os_account
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.find import AgentRequest, NotOpen, find_open, only_open, short
from askfirst.cli.output import on_database
from askfirst.errors import CaseNotFound, ServiceError
from askfirst.ids import BASE_URL_VARIABLE
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
        case = await cases.case_for(item.row) if isinstance(item, AgentRequest) else item.case
        token = await cases.issue(case.case_id, by=os_account(), days=days)
    except CaseNotFound as error:
        raise NotOpen(f"{short(item)} has been settled at this moment; there is no link to it.") from error
    return review_url(base_url, case.case_id, token)


DEFAULT_BASE_URL = "http://127.0.0.1:8000"


@click.command()
@click.argument("id", required=False)
@click.option(
    "--base-url",
    envvar=BASE_URL_VARIABLE,
    show_envvar=True,
    default=DEFAULT_BASE_URL,
    show_default=True,
    help="The public URL of the service, the same as for askfirst serve.",
)
@click.option(
    "--days",
    type=click.FloatRange(0, 36_500, min_open=True),
    default=LINK_DAYS,
    show_default=True,
    help="For how many days the link is valid.",
)
@click.option(
    "--revoke", is_flag=True, help="Revoke all links and submit tokens of ID, and make no new link."
)
def link(id: str | None, base_url: str, days: float, revoke: bool) -> None:
    """Print a new link to the page of ID, or revoke its links.

    The request or case ID can be answered on this page. ID is an id that askfirst pending prints. It can be
    left out if only one request is open. Anyone who has the link may answer, so give it only to the person
    who is to decide. Only hashes of links are stored, so an earlier link cannot be shown again. This
    command makes one more; earlier links stay valid until they expire. When the case has ended, its links
    show the outcome. The audit trail records who made a link and who revoked links.

    The page exists while a service runs on this database: askfirst serve, or your own application; give its
    address as --base-url.

    Exits with 4 if the request is no longer open.
    """
    if revoke:
        if id is None:
            raise click.UsageError("--revoke needs the ID whose links are to end.")
        from askfirst.cli.keys import revoke_links

        click.echo(revoke_links(id))
        return

    click.echo(new_link(id, base_url, days))
