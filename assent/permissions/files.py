"""The test ``within``: a file path that stays inside a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def within(operand: Any) -> Callable[[Any], bool | None]:
    """The path leads to this folder or below it, ``..`` and symlinks followed, whether it exists or not.

    A relative path starts at the folder. The path is read in two ways, as the system does and with ``..``
    taken off the text first; where they differ it cannot tell. Nor can it for an empty path, for ``~``, for
    NUL, and for backslashes where they are no separator.
    """
    if not isinstance(operand, str) or not Path(operand).is_absolute() or "\0" in operand:
        raise ValueError("needs the absolute path of a folder")

    def test(value: Any) -> bool | None:
        if not isinstance(value, str) or not value or value.startswith("~") or "\0" in value:
            return None
        if "\\" in value and os.sep != "\\":
            return None
        try:
            folder = _real(operand)
            joined = os.path.join(operand, value)  # noqa: PTH118  (nothing may be tidied up yet)
            as_system = _is_below(_real(joined), folder)
            as_text = _is_below(_real(os.path.normpath(joined)), folder)
        except (OSError, ValueError):
            return None
        return as_system if as_system == as_text else None

    return test


def _real(path: str) -> str:
    return os.path.normcase(os.path.realpath(path))


def _is_below(path: str, folder: str) -> bool:
    try:
        return os.path.commonpath([path, folder]) == folder
    except ValueError:  # on different drives
        return False
