"""How long to wait before a message is tried again."""

from __future__ import annotations

import random

from assent.errors import DeliveryError

_FIRST = 1.0


def pause_after(tries: int, error: Exception, *, longest: float) -> float:
    """Seconds until the next attempt: more each time, at random, and never less than the platform asked for."""
    most = min(_FIRST * 2 ** min(tries, 16), longest)
    pause = random.uniform(most / 2, most)  # noqa: S311
    asked = error.retry_after if isinstance(error, DeliveryError) else None
    return pause if asked is None else max(asked, pause)
