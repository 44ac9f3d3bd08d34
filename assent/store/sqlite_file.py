"""The file that an SQLite database was opened from, and whether it is still where it was."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from assent.errors import StoreError


class SQLiteFile:
    """A file by its path and its identity: SQLite goes on writing to one that nobody can find any more."""

    def __init__(self, path: str) -> None:
        self._path = str(Path(path).absolute())  # the working directory may change
        self._found = self._find()

    def check(self) -> None:
        """Raise `StoreError` if the file is not there any more, or another is."""
        if self._found is None or self._find() != self._found:
            raise StoreError(
                f"the SQLite database {self._path!r} was removed or replaced while it was open; what is written "
                "to it would be lost: close it, and open what is there now"
            )

    def _find(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116  (for every commit: a third of what a `Path` takes)
        except OSError:
            return None
        return found.st_dev, found.st_ino


def make_private(path: str) -> None:
    """Make an empty file that only its owner may read, unless there is one; SQLite fills it, and gives the files
    beside it the same rights. Where that cannot be, SQLite says why as it opens the file."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def readable_by_others(path: str) -> bool:
    """Whether others than the file's owner may read it; False where there is no such file, or no such rights."""
    try:
        return os.name == "posix" and bool(os.stat(path).st_mode & 0o077)  # noqa: PTH116
    except OSError:
        return False
