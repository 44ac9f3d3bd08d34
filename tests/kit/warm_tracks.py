"""Which race tracks have run a target on a store once, so that the processes forked from them find it loaded."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from askfirst.hitl.testing import RaceTrack

_DONE: WeakKeyDictionary[RaceTrack, set[tuple[str, str]]] = WeakKeyDictionary()


def is_cold(track: RaceTrack, target: str, url: str) -> bool:
    """Whether this is the first call with these values: then the target has to be warmed up on that database."""
    done = _DONE.setdefault(track, set())
    if (target, url) in done:
        return False
    done.add((target, url))
    return True
