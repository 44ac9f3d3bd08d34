"""Counting what links, cases, recipients and addresses use, before anything costly is done for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from ipaddress import IPv4Address, ip_address, ip_network

from starlette.requests import HTTPConnection

from assent.clock import Clock, SystemClock
from assent.errors import OverBudget
from assent.service.budgets import HOUR, MINUTE, Budgets
from assent.service.case import Case
from assent.store.case_store import CaseStore
from assent.store.counts import Use
from assent.store.finish import finish
from assent.store.windows import Window

KEPT = 2 * HOUR
"""How long it is kept that something was used."""


class Spending:
    """What may still be used of the budgets. Everything is counted in the store, for all processes together."""

    def __init__(self, store: CaseStore, budgets: Budgets, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self.budgets = budgets

    async def post(self, token: str) -> None:
        """Something is sent by a link; raises `OverBudget`."""
        await self._spend([self._use("posts_per_minute", token, MINUTE)])

    async def proof(self, case: Case, address: str | None) -> None:
        """Proofs are tried; raises `OverBudget`."""
        uses = [self._use("proofs_per_hour", case.case_id, HOUR)]
        await self._spend([*uses, *self._at("tries_per_address", address)])

    async def code(self, case: Case, recipient: str, address: str | None) -> None:
        """A code is to be sent by e-mail; raises `OverBudget`."""
        uses = [
            self._use("codes_per_case", case.case_id, HOUR),
            self._use("codes_per_recipient", recipient.lower(), HOUR),
            self._use("codes_per_key", case.key_id or "", HOUR),
        ]
        await self._spend([*uses, *self._at("codes_per_address", address)])

    async def code_try(self, case: Case, address: str | None) -> None:
        """A code is tried, which may be any recipient's of the case; raises `OverBudget`."""
        recipients = sorted({each.lower() for each in case.verify_email or ()})
        uses = [self._use("code_tries_per_recipient", each, HOUR) for each in recipients]
        uses.append(self._use("code_tries_per_key", case.key_id or "", HOUR))
        await self._spend([*uses, *self._at("tries_per_address", address)])

    async def prefills(self, case: Case, count: int) -> bool:
        """Whether so many values may be fetched for a case's fields."""
        try:
            await self._spend([self._use("prefills_per_minute", case.case_id, MINUTE, count)])
        except OverBudget:
            return False
        return True

    async def forget(self) -> bool:
        """Forget what was used long ago; False, for there is never more at once."""
        now = self._now()
        await finish(self._store.forget_counts(now - KEPT))
        await finish(self._store.forget_streams(now))
        return False

    async def _spend(self, uses: Sequence[Use]) -> None:
        refused = await finish(self._store.spend_all(uses, self._now()))
        if refused is not None:
            raise OverBudget(refused.budget, refused.wait)

    def _use(self, budget: str, whose: str, milliseconds: int, amount: int = 1) -> Use:
        """``whose`` is kept as a hash: nobody reads from the store who wrote to whom from where."""
        subject = f"{budget}:{hashlib.sha256(whose.encode()).hexdigest()}"
        return Use(budget, subject, Window(getattr(self.budgets, budget), milliseconds), amount)

    def _at(self, budget: str, address: str | None) -> list[Use]:
        return [] if address is None else [self._use(budget, address, HOUR)]

    def _now(self) -> int:
        return round(self._clock.now() * 1000)


def address_of(connection: HTTPConnection) -> str | None:
    """The network address that a request comes from, as the server sees it: of IPv6, the network of 64 bits that
    one household or machine has.

    None for this machine itself: that is whoever runs the service, or a proxy that does not say for whom it asks.
    """
    if connection.client is None:
        return None
    try:
        address = ip_address(connection.client.host)
    except ValueError:  # a proxy has called somebody by a name
        return connection.client.host[:255]
    if address.is_loopback:
        return None
    return str(address) if isinstance(address, IPv4Address) else str(ip_network((address, 64), strict=False))
