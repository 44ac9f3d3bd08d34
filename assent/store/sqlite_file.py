"""The file that an SQLite database was opened from, and whether it is still where it was."""

from __future__ import annotations

from pathlib import Path

from assent.errors import StoreError


class SQLiteFile:
    """A file by its path and its identity: SQLite goes on writing to one that nobody can find any more."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()  # the working directory may change
        self._found = self._find()

    def check(self) -> None:
        """Raise `StoreError` if the file is not there any more, or another is."""
        if self._found is None or self._find() != self._found:
            raise StoreError(
                f"the SQLite database {str(self._path)!r} was removed or replaced while it was open; what is written "
                "to it would be lost: close it, and open what is there now"
            )

    def _find(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
