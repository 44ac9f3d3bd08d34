"""Reaching a person through Apprise: the link, on any of the hundred messengers that it speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from assent.delivery.apprise_place import NAME, Place, places_of
from assent.delivery.base import Ended, Notice, Sent
from assent.errors import DeliveryError

SECONDS = 45.0
"""For all places together; each has its own time-outs too."""


class AppriseDelivery:
    """Sends to everything in ``urls``, each an Apprise address such as ``discord://…`` or ``ntfy://…``.

    A notice that only some of them took goes to the others alone when it is sent again. Such a message cannot
    be changed: when nobody decided, another one says so. How it goes on meanwhile is not told.
    """

    name = NAME
    shows_buttons = False

    def __init__(self, urls: str | Sequence[str]) -> None:
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        if not self._urls or not all("://" in url for url in self._urls):
            raise DeliveryError(NAME, "urls are like discord://…, one or several of them", permanent=True)
        self._places: list[Place] | None = None
        self._taken: dict[tuple[str, str, str], set[int]] = {}
        """By case, kind and body: which places have a notice that others did not take."""
        self._ended: set[str] = set()

    async def send(self, notice: Notice) -> Sent:
        """Send to each place that has not taken this notice yet; raises if one does not take it."""
        if notice.kind != "progress":
            await self._send(notice)
        return Sent(NAME, notice.case_id)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Tell that there is nothing left to decide, if nobody did; once for each case."""
        for key in [key for key in self._taken if key[0] == ended.case_id and key[1] != ended.kind]:
            del self._taken[key]
        if ended.kind == "completed" or ended.case_id in self._ended:
            return
        self._ended.add(ended.case_id)
        try:
            await self._send(Notice(ended.kind, ended.case_id, ended.text))
        except BaseException:
            self._ended.discard(ended.case_id)
            raise

    async def _send(self, notice: Notice) -> None:
        if self._places is None:
            self._places = await asyncio.to_thread(places_of, self._urls)
        key = (notice.case_id, notice.kind, notice.body)
        taken = self._taken.setdefault(key, set())
        try:
            async with asyncio.timeout(SECONDS):
                problems = await asyncio.gather(
                    *(
                        self._tell(number, place, notice, taken)
                        for number, place in enumerate(self._places)
                        if number not in taken
                    )
                )
        except TimeoutError:
            raise DeliveryError(NAME, f"no answer within {SECONDS:g} seconds") from None
        wrong = [problem for problem in problems if problem is not None]
        if wrong:
            # One that may pass is the one to tell: trying again is worth it.
            raise next((each for each in wrong if not each.permanent), wrong[0])
        self._taken.pop(key, None)

    async def _tell(self, number: int, place: Place, notice: Notice, taken: set[int]) -> DeliveryError | None:
        problem = await asyncio.to_thread(place.tell, notice)  # Apprise waits for its servers
        if problem is None:
            taken.add(number)
        return problem
