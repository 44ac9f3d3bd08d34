"""Names match exactly, or by a glob that is plain to see."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

_WILD = re.compile(r"[*?\[]")


def is_glob(pattern: str) -> bool:
    """Whether a pattern is a glob: it has ``*``, ``?`` or ``[``."""
    return _WILD.search(pattern) is not None


def literal_prefix(pattern: str) -> str:
    """What every name that a glob matches begins with."""
    return _WILD.split(pattern, maxsplit=1)[0]


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a whole name matches, upper and lower case apart."""
    if not is_glob(pattern):
        return lambda name: name == pattern
    matches = re.compile(fnmatch.translate(pattern)).match
    return lambda name: matches(name) is not None
