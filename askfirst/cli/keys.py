"""``askfirst keys``: who may open cases, and how that power is revoked."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING

import click

from askfirst.account import os_account
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.find import AgentRequest, Ended, find, short
from askfirst.cli.output import moment, on_database
from askfirst.errors import CaseNotFound, InvalidSecret, StoreError
from askfirst.service.cases import Cases
from askfirst.service.keys import Keys
from askfirst.store.cases import open_of_key
from askfirst.visible_text import visible

if TYPE_CHECKING:
    from askfirst.service.keys import ApiKey


REASON = "the key that opened it was revoked"


def revoke_key(key_id: str, *, cancel_open: bool) -> str:
    """Revoke a key, and cancel the cases that it opened if so asked; returns a sentence."""
    return on_database(partial(_revoke_key, key_id, cancel_open), acts=True)


def revoke_links(id: str) -> str:
    """Revoke all links to an item; returns a sentence. Raises `NotOpen` for an unknown id."""
    return on_database(partial(_revoke_links, id), acts=True)


async def _revoke_key(key_id: str, cancel_open: bool, checkpointer: SqlCheckpointer) -> str:
    keys, cases = Keys(checkpointer.engine), Cases(checkpointer)
    revoked = await keys.revoke(key_id)
    if not revoked and not (cancel_open and key_id in {key.key_id for key in await keys.listing()}):
        raise StoreError(f"there is no key {key_id!r} that could be revoked; see askfirst keys list")
    if cancel_open:
        count = await cases.cancel_opened_by(key_id, by=os_account(), reason=REASON)
        return f"Revoked {key_id}, and cancelled {_cases(count)} of it."
    if await checkpointer.engine.read(partial(open_of_key, key_id, 1)):
        return f"Revoked {key_id}. Cases of it are still open; --cancel-open cancels them."
    return f"Revoked {key_id}."


async def _revoke_links(id: str, checkpointer: SqlCheckpointer) -> str:
    item = await find(checkpointer, id)
    case_id = item.id if isinstance(item, Ended | AgentRequest) else item.case.case_id
    try:
        count = await Cases(checkpointer).revoke_links(case_id, by=os_account())
    except CaseNotFound:
        count = 0  # a request of which no service has made a case yet, so that nobody has a link
    shown = case_id if isinstance(item, Ended) else short(item)
    return f"Revoked {count} link{'' if count == 1 else 's'} to {shown}."


def _cases(count: int) -> str:
    return f"{count} open case{'' if count == 1 else 's'}"


@click.group()
def keys() -> None:
    """API keys, with which agents open cases."""


@keys.command()
@click.argument("name")
def create(name: str) -> None:
    """Make a key for the agent or service NAME.

    The key is printed once, alone on the last line; only its hash is kept. The secret that the key's
    callbacks are signed with stands above it, if ASKFIRST_SECRET is set.
    """
    from askfirst.service.callbacks import SECRET_VARIABLE
    from askfirst.service.keys import Keys

    server_secret = os.environ.get(SECRET_VARIABLE)
    if server_secret:
        _derived("")  # a secret that is too short is said to be so before a key is made
    issued = on_database(lambda checkpointer: Keys(checkpointer.engine).issue(name), acts=True)
    click.echo(f"Key {issued.key_id} for {visible(name)}. Keep it safe: it is not shown again.")
    if server_secret:
        click.echo(f"Callback secret: {_derived(issued.key_id)}")
    click.echo(issued.text)


@keys.command("list")
@click.option(
    "--json", "as_json", is_flag=True, help="Print lines of JSON, with times in seconds since 1970."
)
def list_keys(as_json: bool) -> None:
    """List all keys, oldest first, revoked ones too."""
    from askfirst.service.keys import Keys

    for key in on_database(lambda checkpointer: Keys(checkpointer.engine).listing()):
        click.echo(json.dumps(key._asdict()) if as_json else _line(key))


@keys.command()
@click.argument("key_id")
@click.option("--cancel-open", is_flag=True, help="Cancel the open cases of this key.")
def revoke(key_id: str, cancel_open: bool) -> None:
    """Revoke the key KEY_ID for good, in every process at once, and the submit tokens of its cases.

    Links to its cases stay valid: people can still answer there, and so can the key's holder, if links were
    handed to callers. --cancel-open cancels those cases. It also works on a key that is revoked already.
    """

    click.echo(revoke_key(key_id, cancel_open=cancel_open))


@keys.command("callback-secret")
@click.argument("key_id")
def show_callback_secret(key_id: str) -> None:
    """Print the secret that callbacks for the key KEY_ID are signed with.

    It is derived from ASKFIRST_SECRET. Give it to whoever receives the callbacks.
    """
    from askfirst.service.keys import Keys

    known = on_database(lambda checkpointer: Keys(checkpointer.engine).listing())
    if key_id not in {key.key_id for key in known}:
        raise StoreError(f"there is no key {key_id!r}; see askfirst keys list")
    click.echo(_derived(key_id))


def _derived(key_id: str) -> str:
    from askfirst.service.callbacks import SECRET_VARIABLE, callback_secret

    server_secret = os.environ.get(SECRET_VARIABLE)
    if not server_secret:
        raise InvalidSecret(
            f"{SECRET_VARIABLE} is not set; callbacks are signed with what is derived from it"
        )
    return callback_secret(server_secret, key_id)


def _line(key: ApiKey) -> str:
    state = "active" if key.revoked_at is None else f"revoked {moment(key.revoked_at)}"
    return f"{key.key_id}  created {moment(key.created_at)}  {state}  {visible(key.name)}"
