"""Ways to reach a person: one small protocol, and the deliveries that come with Assent.

The public names, loaded when they are first used, each with its own libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assent.lazy import exports

if TYPE_CHECKING:
    from assent.delivery.apprise_delivery import AppriseDelivery
    from assent.delivery.base import (
        Button,
        Deliver,
        Delivery,
        Ended,
        Notice,
        Press,
        PressAnswer,
        PressDelivery,
        Sent,
    )
    from assent.delivery.choosing import auto, delivery_named
    from assent.delivery.desktop import DesktopDelivery
    from assent.delivery.email import EmailDelivery
    from assent.delivery.qr import QRDelivery
    from assent.delivery.several import Several
    from assent.delivery.telegram import TelegramDelivery
    from assent.delivery.terminal import TerminalDelivery
    from assent.delivery.terminal_answers import answering_in_terminal, desk_in_terminal

_HOMES = {
    "AppriseDelivery": "apprise_delivery",
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
    "TelegramDelivery": "telegram",
    "TerminalDelivery": "terminal",
    "answering_in_terminal": "terminal_answers",
    "auto": "choosing",
    "delivery_named": "choosing",
    "desk_in_terminal": "terminal_answers",
}

__all__ = [
    "AppriseDelivery",
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
    "TelegramDelivery",
    "TerminalDelivery",
    "answering_in_terminal",
    "auto",
    "delivery_named",
    "desk_in_terminal",
]

__getattr__, __dir__ = exports(globals(), _HOMES)
