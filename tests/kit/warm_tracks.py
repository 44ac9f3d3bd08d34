"""Which race tracks have done a thing on a store once, so that what is forked from them finds it loaded."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from askfirst.hitl.testing import RaceTrack

_DONE: WeakKeyDictionary[RaceTrack, set[tuple[str, str]]] = WeakKeyDictionary()


def is_cold(track: RaceTrack, target: str, url: str) -> bool:
    """Whether nobody has asked this before: then the target should be warmed up on that database."""
    done = _DONE.setdefault(track, set())
    if (target, url) in done:
        return False
    done.add((target, url))
    return True
