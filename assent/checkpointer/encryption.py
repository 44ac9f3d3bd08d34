"""Whether a database is encrypted, and with which key, as it is opened."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from assent.checkpointer.extras import needs
from assent.errors import StoreError
from assent.master_keys import FILE_VARIABLE, KEY_VARIABLE, MasterKeys

if TYPE_CHECKING:
    from assent.store.engine import Engine

GROWTH = 1.4
"""How much longer than the value the text is that an encrypted value is stored as, at most."""


async def encrypting(engine: Engine, masters: MasterKeys | None) -> Engine:
    """An open engine that encrypts, if there is a master key; else the engine itself.

    Closes the engine and raises `StoreError` if the database is encrypted and the key to it was not given.
    """
    from assent.store import data_keys

    try:
        if masters is None:
            if await engine.read(data_keys.listing):
                raise StoreError(
                    f"this database is encrypted: set {KEY_VARIABLE} to its key, or {FILE_VARIABLE} to a file that "
                    "has it"
                )
            return engine
        with needs("Encryption", "encryption"):
            from assent.store.sealing import SealingEngine, fresh, ring
        rows = await engine.read(data_keys.listing)
        if not rows:
            rows = await engine.write(partial(data_keys.first, fresh(masters)))
        return SealingEngine(engine, ring(rows, masters))
    except BaseException:
        await engine.close()
        raise
