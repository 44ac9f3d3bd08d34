"""The file of the signing key: made for its owner alone, and refused where others can read it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import click

from askfirst.errors import InvalidSecret

if TYPE_CHECKING:
    from askfirst.protocol import SigningKey


SIGNING_KEY_VARIABLE = "ASKFIRST_SIGNING_KEY"
"""The environment variable that names the file."""


def signing_key_in(path: Path) -> SigningKey:
    """The key in a file; a new one, readable for its owner alone, if there is no such file."""
    from askfirst.protocol import SigningKey

    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be made: {error.strerror}") from error
    key = SigningKey.generate()
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(key.private_jwk(), file)
    return key


def _read(path: Path) -> SigningKey:
    from askfirst.protocol import SigningKey

    try:
        with path.open(encoding="utf-8") as file:
            others = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
            if os.name == "posix" and others:
                raise click.ClickException(f"{path} can be read by others: chmod 600 {path}")
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from error
    try:
        return SigningKey(json.loads(text))
    except (ValueError, TypeError, InvalidSecret):  # the error is not chained: its text may quote the key
        raise click.ClickException(
            f"--signing-key: {path} holds no private key (a JWK of the curve P-256)"
        ) from None
