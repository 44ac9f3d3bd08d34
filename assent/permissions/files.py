"""The test ``within``: a file path that stays inside a folder."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

_KEYS = ("folder", "relative_to")

# What a shell or a library turns into another path: variables, percent codes, globs, braces, commands, control
# characters, a home directory at the start of a step, and what has a scheme.
_EXPANDED = re.compile(r"[$%`*?\[{\x00-\x1f\x7f]|(?:^|/)~|://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ELSEWHERE = ("/proc", "/dev")
"""Where a path means something else to each process that opens it."""
_LONGEST = 4096
"""How many characters of a path are looked at; systems open no longer one."""


def within(operand: Any) -> Callable[[Any], bool | None]:
    """The path leads to this folder or below it, ``..`` and symlinks followed, whether it exists or not.

    A relative path cannot be told, for a tool opens it from its own working directory; unless the operand says
    where relative paths start: ``{"folder": "/srv/data", "relative_to": "/srv/data"}``. The path is read in two
    ways, as the system does and with ``..`` taken off the text first; where they differ it cannot tell. Nor can it
    for what is no plain path: what is empty, has a scheme, or has something in it that others expand.
    """
    folder, start = _read(operand)

    def test(value: Any) -> bool | None:
        path = _plain(value, start)
        if path is None:
            return None
        try:
            inside = _real(folder)
            as_system, as_text = _real(path), _real(os.path.normpath(path))
        except (OSError, ValueError):
            return None
        told = _is_below(as_system, inside)
        if told is not _is_below(as_text, inside):
            return None
        if not told and _is_below(_composed(as_system), _composed(inside)):
            return None  # some file systems take the two spellings of a name for one
        return told

    return test


def _read(operand: Any) -> tuple[str, str | None]:
    if not isinstance(operand, Mapping):
        return _absolute(operand, ""), None
    fields = cast("Mapping[Any, Any]", operand)
    for key in fields:
        if key not in _KEYS:
            raise ValueError(f"has no {key!r}; it has {' and '.join(_KEYS)}")
    start = fields.get("relative_to")
    folder = _absolute(fields.get("folder"), " as its folder")
    return folder, None if start is None else _absolute(start, " as relative_to")


def _absolute(path: Any, role: str) -> str:
    if not isinstance(path, str) or not Path(path).is_absolute() or "\0" in path:
        raise ValueError(f"needs the absolute path of a folder{role}")
    return path


def _plain(value: Any, start: str | None) -> str | None:
    """The path from the root, with nothing tidied up yet; None if the text may lead elsewhere when it is used."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or _EXPANDED.search(value):
        return None
    if "\\" in value and os.sep != "\\":
        return None
    drive, _ = os.path.splitdrive(value)
    if not drive and _SCHEME.match(value):
        return None
    if not Path(value).is_absolute():
        if start is None or drive:
            return None
        value = os.path.join(start, value)  # noqa: PTH118  (nothing may be tidied up yet)
    return None if _is_of_a_process(value) else value


def _is_of_a_process(path: str) -> bool:
    tidy = os.path.normpath(path)
    return os.sep == "/" and any(_is_below(tidy, each) for each in _ELSEWHERE)


def _real(path: str) -> str:
    return os.path.normcase(os.path.realpath(path))


def _is_below(path: str, folder: str) -> bool:
    try:
        return os.path.commonpath([path, folder]) == folder
    except ValueError:  # on different drives
        return False


def _composed(path: str) -> str:
    return path if path.isascii() else unicodedata.normalize("NFC", path)
