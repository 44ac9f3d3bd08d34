"""``askfirst encryption``: the keys that encrypt what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.output import on_database
from askfirst.encryption_keys import FILE_VARIABLE, KEY_VARIABLE, MasterKeys, new_master_key
from askfirst.errors import StoreError

if TYPE_CHECKING:
    from askfirst.store.encryption import SealingEngine


@click.group()
def encryption() -> None:
    """Encryption of the database: cases, answers, messages."""


@encryption.command("new-key")
def new_key() -> None:
    """Print a new key.

    Keep it apart from the database and its backups: without it nobody reads them. ASKFIRST_ENCRYPTION_KEY
    holds it, or a file that ASKFIRST_ENCRYPTION_KEY_FILE names.
    """
    click.echo(new_master_key())


@encryption.command()
def rotate() -> None:
    """Encrypt the data keys anew, with the first of the given master keys.

    Set the variable to the new key and the old one, restart every process, run this command, and remove the
    old key from the variable. It writes only the data keys, however large the database is.
    """

    async def work(checkpointer: SqlCheckpointer) -> int:
        from askfirst.store.encryption import rewrap_data_keys as rewrap

        return await rewrap(*_keys_of(checkpointer))

    count = on_database(work)
    click.echo(f"{count} data key{'' if count == 1 else 's'} encrypted anew.")


@encryption.command()
@click.option(
    "--new-data-key", is_flag=True, help="Make a new data key first. Restart every process after it."
)
def rewrite(new_data_key: bool) -> None:
    """Encrypt every value that is not encrypted with the current data key.

    Use it for a database that was used without a key before, and after a data key has become known to
    others. It may be interrupted and run again. On SQLite, compact the file afterwards.
    """

    async def work(checkpointer: SqlCheckpointer) -> int:
        from askfirst.store.encryption import add_data_key, reseal

        engine, masters = _keys_of(checkpointer)
        if new_data_key:
            await add_data_key(engine, masters)
        done: dict[str, int] = {}
        async for step in reseal(engine):
            if step.table not in done:
                click.echo(f"{step.table} …", err=True)
            done[step.table] = step.values
        return sum(done.values())

    count = on_database(work)
    click.echo(f"{count} value{'' if count == 1 else 's'} encrypted.")


def _keys_of(checkpointer: SqlCheckpointer) -> tuple[SealingEngine, MasterKeys]:
    """The engine that encrypts, and the keys it does so with. Raises `StoreError` if none is given."""
    from askfirst.store.encryption import SealingEngine

    engine, masters = checkpointer.engine, checkpointer.master_keys
    if masters is None or not isinstance(engine, SealingEngine):
        raise StoreError(
            f"no encryption key is given: set {KEY_VARIABLE} or {FILE_VARIABLE}; "
            "askfirst encryption new-key prints a key"
        )
    return engine, masters
