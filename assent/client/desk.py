"""What all waits of a client share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assent.client.callback import CallbackReceiver
from assent.client.connections import Connections
from assent.client.offer import may_call
from assent.client.pace import Pace
from assent.client.rounds import Rounds
from assent.client.signed_results import SignatureChecks
from assent.client.telling import Teller
from assent.clock import Clock

if TYPE_CHECKING:
    from assent.client.live import LiveCase


@dataclass(frozen=True, slots=True)
class Desk:
    """The parts of an open client, and its cases that are waited for just now, by id."""

    connections: Connections
    teller: Teller
    clock: Clock
    pace: Pace
    allowed_hosts: frozenset[str]
    progress: bool
    callback: CallbackReceiver | None
    signatures: SignatureChecks
    rounds: Rounds = field(default_factory=Rounds)
    live: dict[str, LiveCase] = field(default_factory=dict[str, "LiveCase"])

    def may_call(self, url: str, service: str) -> bool:
        """Whether the credentials for a service may go to this address."""
        return may_call(url, service, self.allowed_hosts)
