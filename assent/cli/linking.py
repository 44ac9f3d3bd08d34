"""A link to the page of what waits for a person."""

from __future__ import annotations

from functools import partial

import click

from assent.account import os_account
from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.database import on_database
from assent.cli.items import Asked
from assent.cli.lookup import NotOpen, find_open, short
from assent.errors import CaseNotFound, ServiceError
from assent.service.addresses import check_base_url
from assent.service.cases import Cases
from assent.service.wire import review_url


def new_link(id: str, base_url: str, days: float) -> str:
    """A link that nobody had before, to the page where this can be answered. Raises `NotOpen`."""
    try:
        check_base_url(base_url)
    except ServiceError as error:
        raise click.UsageError(str(error).replace("base_url", "--base-url", 1)) from None
    return on_database(partial(_link, id, base_url.rstrip("/"), days), acts=True)


async def _link(id: str, base_url: str, days: float, checkpointer: SqlCheckpointer) -> str:
    item = await find_open(checkpointer, id)
    cases = Cases(checkpointer)
    try:
        case = await cases.case_for(item.row) if isinstance(item, Asked) else item.case
        token = await cases.issue(case.case_id, by=os_account(), days=days)
    except CaseNotFound as error:
        raise NotOpen(f"{short(item)} has been settled at this moment; there is no link to it.") from error
    return review_url(base_url, case.case_id, token)
