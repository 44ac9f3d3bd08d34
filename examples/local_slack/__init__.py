"""A local Slack: a workspace that makes the platform's checks, and people who press its buttons."""

from __future__ import annotations

from .limits import Refusal
from .people import ADA, BEN, GUEST, STRANGER, People, SlackPerson
from .server import APP_TOKEN, BOT_TOKEN, CHANNEL, SIGNING_SECRET, TEAM, LocalSlack, local_slack

__all__ = [
    "ADA",
    "APP_TOKEN",
    "BEN",
    "BOT_TOKEN",
    "CHANNEL",
    "GUEST",
    "LocalSlack",
    "People",
    "Refusal",
    "SIGNING_SECRET",
    "STRANGER",
    "SlackPerson",
    "TEAM",
    "local_slack",
]
