"""Choosing deliveries: by what the environment offers, or by name."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from assent.delivery.base import Delivery
from assent.delivery.desktop import DesktopDelivery, has_display
from assent.delivery.several import Several
from assent.errors import DeliveryError

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger("assent.delivery")

VARIABLES: Mapping[str, tuple[str, ...]] = {
    "telegram": ("TELEGRAM_BOT_TOKEN", "TELEGRAM_CHAT_ID"),
    "apprise": ("ASSENT_APPRISE_URL",),
    "email": ("ASSENT_MAIL_TO", "ASSENT_SMTP_URL"),
}
"""What has to be set for a messenger to count as configured; ``TELEGRAM_REVIEWERS`` may be, to name users."""


def auto(environ: Mapping[str, str] | None = None, *, console: Console | None = None) -> Delivery:
    """The way that fits where the program runs.

    Messengers and mail where they are configured (`VARIABLES`), all of them. Else a QR code over SSH, the
    browser on a machine with a display, with the link in the terminal too, and the terminal alone elsewhere.
    """
    environ = os.environ if environ is None else environ
    configured: list[Delivery] = []
    for name, variables in VARIABLES.items():
        missing = [variable for variable in variables if not environ.get(variable)]
        if not missing:
            configured.append(delivery_named(name, environ, console=console))
        elif variables[0] not in missing:
            logger.warning("%s is not used: %s is not set", name, " and ".join(missing))
    if configured:
        return configured[0] if len(configured) == 1 else Several(configured)
    if environ.get("SSH_CONNECTION"):
        return delivery_named("qr", environ, console=console)
    terminal = delivery_named("terminal", environ, console=console)
    return Several([DesktopDelivery(), terminal]) if has_display(environ) else terminal


def delivery_named(
    name: str, environ: Mapping[str, str] | None = None, *, console: Console | None = None
) -> Delivery:
    """A delivery by its name, with its settings from the environment. `NAMES` has the names.

    Raises `DeliveryError` for a name that is none, and where settings are missing.
    """
    environ = os.environ if environ is None else environ
    make = _MAKERS.get(name)
    if make is None:
        raise DeliveryError(name, f"there is no such delivery; there are {', '.join(NAMES)}", permanent=True)
    missing = [variable for variable in VARIABLES.get(name, ()) if not environ.get(variable)]
    if missing:
        raise DeliveryError(name, f"{' and '.join(missing)} must be set", permanent=True)
    return make(environ, console)


# A delivery's libraries are loaded when it is wanted.


def _terminal(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from assent.delivery.terminal import TerminalDelivery

    return TerminalDelivery(console)


def _qr(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from assent.delivery.qr import QRDelivery

    return QRDelivery(console)


def _desktop(environ: Mapping[str, str], console: Console | None) -> Delivery:
    return DesktopDelivery()


def _telegram(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from assent.delivery.telegram import TelegramDelivery

    named = environ.get("TELEGRAM_REVIEWERS", "").replace(",", " ").split()
    if not all(each.isascii() and each.isdigit() for each in named):
        problem = "TELEGRAM_REVIEWERS are the numbers of users, such as 1001,1002"
        raise DeliveryError("telegram", problem, permanent=True)
    reviewers = {int(each) for each in named} if "TELEGRAM_REVIEWERS" in environ else None
    return TelegramDelivery(environ["TELEGRAM_BOT_TOKEN"], environ["TELEGRAM_CHAT_ID"], reviewers=reviewers)


def _apprise(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from assent.delivery.apprise_delivery import AppriseDelivery

    return AppriseDelivery(environ["ASSENT_APPRISE_URL"].split())


def _email(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from assent.delivery.email import EmailDelivery

    return EmailDelivery(environ["ASSENT_SMTP_URL"], to=environ["ASSENT_MAIL_TO"].replace(",", " ").split())


def _auto(environ: Mapping[str, str], console: Console | None) -> Delivery:
    return auto(environ, console=console)


_MAKERS: Mapping[str, Callable[[Mapping[str, str], Console | None], Delivery]] = {
    "auto": _auto,
    "terminal": _terminal,
    "qr": _qr,
    "desktop": _desktop,
    "telegram": _telegram,
    "email": _email,
    "apprise": _apprise,
}
NAMES = tuple(_MAKERS)
"""What `delivery_named` knows."""
