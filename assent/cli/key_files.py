"""Files that hold a secret: made for their owner alone, and refused where others can read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import click


def read_or_make(path: Path, make: Callable[[], str]) -> str:
    """What a file holds; if there is none, it is made with what ``make`` gives, readable for its owner alone."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be made: {error.strerror}") from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(made := make())
    return made


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            others = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
            if os.name == "posix" and others:
                raise click.ClickException(f"{path} can be read by others: chmod 600 {path}")
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from error
