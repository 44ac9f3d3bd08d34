"""Handing a review link over to a person, in one call, for agents that do the rest themselves."""

from __future__ import annotations

import asyncio
import os

from assent.delivery.base import Delivery, Notice
from assent.delivery.choosing import NAMES, VARIABLES, auto, delivery_named
from assent.delivery.links import is_web_link
from assent.errors import DeliveryError

_MESSAGING = "messaging"
_ASKED = "Please review this and decide."


def deliver_review_url(url: str, mode: str = "auto") -> None:
    """Bring a ``review_url`` to the person: show it, open it, or send it.

    ``mode`` is ``"desktop"`` (the browser of this machine), ``"qr"`` (a code in the terminal, for a phone),
    ``"messaging"`` (the messengers and mail that the environment configures), ``"auto"``, which finds out which of
    these fits, or the name of a delivery, such as ``"telegram"``. It returns when the link is on its way. Raises
    `DeliveryError` if that did not work and ``ValueError`` for a mode that is none, or for what is no web address.
    Whoever has the link may answer: it is in no error and in no log.

    In a thread that runs an event loop it raises ``RuntimeError``: the loop would stand still meanwhile. Call it as
    ``await asyncio.to_thread(deliver_review_url, url)`` there, or use a `HitlClient`.
    """
    if not is_web_link(url):
        raise ValueError(
            "a review URL is a web address: it begins with https://, or with http:// on this machine"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(_handed_over(url, _delivery(mode)))
    else:
        raise RuntimeError(
            "this thread runs an event loop, which would stand still; "
            "await asyncio.to_thread(deliver_review_url, url) instead"
        )


async def _handed_over(url: str, delivery: Delivery) -> None:
    await delivery.send(Notice("review", "review", _ASKED, review_url=url))


def _delivery(mode: str) -> Delivery:
    if mode == _MESSAGING:
        if not any(os.environ.get(variables[0]) for variables in VARIABLES.values()):
            names = ", ".join(variables[0] for variables in VARIABLES.values())
            raise DeliveryError(mode, f"no messenger is configured: set one of {names}", permanent=True)
        return auto()
    if mode not in NAMES:
        raise ValueError(f"mode is one of {', '.join(sorted({*NAMES, _MESSAGING}))}")
    return delivery_named(mode)
