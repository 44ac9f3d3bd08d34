"""Deliveries: the protocol that sends messages to people, and the deliveries that come with Askfirst.

The public names are loaded lazily, each with its own libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from askfirst.lazy import exports

if TYPE_CHECKING:
    from askfirst.delivery.apprise import AppriseDelivery
    from askfirst.delivery.base import (
        AddressedDelivery,
        Button,
        Deliver,
        Delivery,
        Ended,
        Notice,
        Press,
        PressAnswer,
        PressDelivery,
        Sent,
        StoredDelivery,
    )
    from askfirst.delivery.contents import Contents
    from askfirst.delivery.desktop import DesktopDelivery
    from askfirst.delivery.email import EmailDelivery
    from askfirst.delivery.qr import QRDelivery
    from askfirst.delivery.registry import auto, delivery_named
    from askfirst.delivery.several import Several
    from askfirst.delivery.slack import SlackDelivery
    from askfirst.delivery.teams import TeamsDelivery
    from askfirst.delivery.telegram import TelegramDelivery
    from askfirst.delivery.terminal import TerminalDelivery
    from askfirst.delivery.terminal_answers import answering_in_terminal, desk_in_terminal

_HOMES = {
    "AddressedDelivery": "base",
    "AppriseDelivery": "apprise",
    "Contents": "contents",
    "Button": "base",
    "Deliver": "base",
    "Delivery": "base",
    "DesktopDelivery": "desktop",
    "EmailDelivery": "email",
    "Ended": "base",
    "Notice": "base",
    "Press": "base",
    "PressAnswer": "base",
    "PressDelivery": "base",
    "QRDelivery": "qr",
    "Sent": "base",
    "Several": "several",
    "SlackDelivery": "slack",
    "StoredDelivery": "base",
    "TeamsDelivery": "teams",
    "TelegramDelivery": "telegram",
    "TerminalDelivery": "terminal",
    "answering_in_terminal": "terminal_answers",
    "auto": "registry",
    "delivery_named": "registry",
    "desk_in_terminal": "terminal_answers",
}

__all__ = [
    "AddressedDelivery",
    "AppriseDelivery",
    "Contents",
    "Button",
    "Deliver",
    "Delivery",
    "DesktopDelivery",
    "EmailDelivery",
    "Ended",
    "Notice",
    "Press",
    "PressAnswer",
    "PressDelivery",
    "QRDelivery",
    "Sent",
    "Several",
    "SlackDelivery",
    "StoredDelivery",
    "TeamsDelivery",
    "TelegramDelivery",
    "TerminalDelivery",
    "answering_in_terminal",
    "auto",
    "delivery_named",
    "desk_in_terminal",
]

__getattr__, __dir__ = exports(globals(), _HOMES)
