"""Encryption of the secrets in a stored wait: the review link and the submit token.

The key is the store's encryption key, where there is one. Else it is in a file of this account's on this machine,
apart from the database, so that a reader of the database or a backup cannot answer. A process with another key
resumes the wait all the same, without the link and without inline answers.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.checkpointer.opening import needs
from askfirst.encryption_keys import FILE_VARIABLE, KEY_BYTES, KEY_VARIABLE, MasterKeys
from askfirst.errors import StoreError
from askfirst.messages import JsonObject

if TYPE_CHECKING:
    from askfirst.store.encryption import Keyring

logger = logging.getLogger("askfirst.client")
_FIELDS = ("review_url", "submit_token")


class WaitSecrets:
    """Encrypts and decrypts the secrets in the stored state of waits."""

    def __init__(self, keeper: CheckpointKeeper) -> None:
        self._keeper = keeper
        self._ring: Keyring | None = None
        self._has_warned = False

    async def closed(self, body: JsonObject) -> JsonObject:
        """Encrypt the secrets of a wait's body."""
        hitl = _hitl(body)
        if hitl is None:
            return body
        ring = await self._keys()
        secret = {name: ring.seal(_place(name), hitl[name]) for name in _FIELDS if _is_text(hitl.get(name))}
        return _with(body, {**hitl, **secret}) if secret else body

    async def opened(self, body: JsonObject) -> JsonObject:
        """Decrypt a stored body; with another key, the link and the submit token are unknown."""
        hitl = _hitl(body)
        if hitl is None:
            return body
        ring = await self._keys()
        try:
            plain = {
                name: ring.open(_place(name), hitl[name]) for name in _FIELDS if _is_text(hitl.get(name))
            }
            return _with(body, {**hitl, **plain})
        except StoreError:
            self._warn()
            unknown = {"review_url": hitl.get("poll_url"), "submit_token": None, "submit_url": None}
            return _with(body, {**hitl, **unknown}, derived=True)

    async def _keys(self) -> Keyring:
        if self._ring is None:
            masters: MasterKeys | None = getattr(self._keeper, "master_keys", None)
            masters = masters or await asyncio.to_thread(_account_key)
            with needs("keeping a wait", "client"):
                from askfirst.store.encryption import Keyring
            # Derived keys: they encrypt waits and nothing else.
            keys = {name: hmac.digest(key, b"waits", "sha256") for name, key in masters.named.items()}
            self._ring = Keyring(keys, masters.current)
        return self._ring

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a stored wait was begun with another key, so its link is not known here; set %s or %s to one key "
                "in all processes that share the store",
                KEY_VARIABLE,
                FILE_VARIABLE,
            )


def _hitl(body: JsonObject) -> Mapping[str, Any] | None:
    state = body.get("state")
    hitl = cast("Mapping[str, Any]", state).get("hitl") if isinstance(state, Mapping) else None
    return cast("Mapping[str, Any]", hitl) if isinstance(hitl, Mapping) else None


def _with(body: JsonObject, hitl: Mapping[str, Any], **more: Any) -> JsonObject:
    return {**body, "state": {**cast("Mapping[str, Any]", body["state"]), "hitl": dict(hitl), **more}}


def _place(name: str) -> str:
    return f"waits.{name}"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _account_key() -> MasterKeys:
    """The key of this account on this machine, made when it is first needed; readable by the account alone."""
    home = os.environ.get("XDG_STATE_HOME")
    path = Path(home or Path.home() / ".local" / "state") / "askfirst" / "waits.key"
    try:
        with suppress(FileNotFoundError):
            return MasterKeys([path.read_bytes()])
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        try:
            with suppress(FileExistsError):
                os.link(fresh, path)  # atomic: another process may be making it
        finally:
            fresh.unlink()
        return MasterKeys([path.read_bytes()])
    except OSError as error:
        logger.warning(
            "no key can be kept for stored waits (%s), so their links end with this process; set %s or %s",
            error.strerror,
            KEY_VARIABLE,
            FILE_VARIABLE,
        )
        return MasterKeys([secrets.token_bytes(KEY_BYTES)])


__all__ = ["WaitSecrets"]
