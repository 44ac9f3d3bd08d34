"""Taking power back: keys, and with them the cases that they opened; links."""

from __future__ import annotations

from functools import partial

from assent.account import os_account
from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.database import on_database
from assent.cli.items import Asked
from assent.cli.lookup import Ended, find, short
from assent.errors import CaseNotFound, StoreError
from assent.service.cases import Cases
from assent.service.keys import Keys

REASON = "the key that opened it was revoked"


def revoke_key(key_id: str, *, cancel_open: bool) -> str:
    """End a key, and the cases that it has opened if they are to end too; says so in a sentence."""
    return on_database(partial(_revoke_key, key_id, cancel_open), acts=True)


def revoke_links(id: str) -> str:
    """End all links to something; says so in a sentence. Raises `NotOpen` for what there is not."""
    return on_database(partial(_revoke_links, id), acts=True)


async def _revoke_key(key_id: str, cancel_open: bool, checkpointer: SqlCheckpointer) -> str:
    keys, cases = Keys(checkpointer.engine), Cases(checkpointer)
    revoked = await keys.revoke(key_id)
    if not revoked and not (cancel_open and key_id in {key.key_id for key in await keys.listing()}):
        raise StoreError(f"there is no key {key_id!r} that could be revoked; see assent keys list")
    if cancel_open:
        count = await cases.cancel_opened_by(key_id, by=os_account(), reason=REASON)
        return f"Revoked {key_id}, and cancelled {_cases(count)} of it."
    if await cases.store.open_of_key(key_id, 1):
        return f"Revoked {key_id}. Cases of it are still open; --cancel-open cancels them."
    return f"Revoked {key_id}."


async def _revoke_links(id: str, checkpointer: SqlCheckpointer) -> str:
    item = await find(checkpointer, id)
    case_id = item.id if isinstance(item, Ended | Asked) else item.case.case_id
    try:
        count = await Cases(checkpointer).revoke_links(case_id, by=os_account())
    except CaseNotFound:
        count = 0  # a request of which no service has made a case yet, so that nobody has a link
    shown = case_id if isinstance(item, Ended) else short(item)
    return f"Revoked {count} link{'' if count == 1 else 's'} to {shown}."


def _cases(count: int) -> str:
    return f"{count} open case{'' if count == 1 else 's'}"
