"""Deliveries by name, by the environment's variables, or from the argument ``deliver=``."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from askfirst.delivery.base import Deliver, Delivery, Ended, Notice, Sent
from askfirst.delivery.desktop import DesktopDelivery, has_display
from askfirst.delivery.kinds import KINDS
from askfirst.delivery.several import Several
from askfirst.errors import DeliveryError
from askfirst.smtp import SMTP_VARIABLE

if TYPE_CHECKING:
    from rich.console import Console


logger = logging.getLogger("askfirst.delivery")

VARIABLES: Mapping[str, tuple[str, ...]] = {
    kind.name: variables for kind in KINDS.values() if (variables := kind.required_variables)
}
"""The variables that must be set for a delivery to count as configured. Optional ones are ``TELEGRAM_REVIEWERS`` (the
users who may decide), and ``SLACK_APP_TOKEN`` or ``SLACK_SIGNING_SECRET`` (for buttons)."""


def auto(environ: Mapping[str, str] | None = None, *, console: Console | None = None) -> Delivery:
    """The delivery that fits the environment.

    It is all configured messengers and mail (`VARIABLES`). If none is configured: a QR code over SSH; the browser and
    the terminal on a machine with a display; otherwise the terminal.
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
    """A delivery by its name (one of `NAMES`), with its settings from the environment.

    Raises `DeliveryError` for an unknown name, or if settings are missing.
    """
    environ = os.environ if environ is None else environ
    make = _MAKERS.get(name)
    if make is None:
        raise DeliveryError(name, f"there is no such delivery; there are {', '.join(NAMES)}", permanent=True)
    missing = [variable for variable in VARIABLES.get(name, ()) if not environ.get(variable)]
    if missing:
        raise DeliveryError(name, f"{' and '.join(missing)} must be set", permanent=True)
    return make(environ, console)


# The libraries of a delivery are loaded only when it is chosen.


def _terminal(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from askfirst.delivery.terminal import TerminalDelivery

    return TerminalDelivery(console)


def _qr(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from askfirst.delivery.qr import QRDelivery

    return QRDelivery(console)


def _desktop(environ: Mapping[str, str], console: Console | None) -> Delivery:
    return DesktopDelivery()


def _telegram(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from askfirst.delivery.telegram import TelegramDelivery

    named = environ.get("TELEGRAM_REVIEWERS", "").replace(",", " ").split()
    if not all(each.isascii() and each.isdigit() for each in named):
        problem = "TELEGRAM_REVIEWERS must be the numbers of users, such as 1001,1002"
        raise DeliveryError("telegram", problem, permanent=True)
    reviewers = {int(each) for each in named} if "TELEGRAM_REVIEWERS" in environ else None
    return TelegramDelivery(environ["TELEGRAM_BOT_TOKEN"], environ["TELEGRAM_CHAT_ID"], reviewers=reviewers)


def _slack(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from askfirst.delivery.slack import SlackDelivery

    return SlackDelivery(
        environ["SLACK_BOT_TOKEN"],
        environ["SLACK_CHANNEL"],
        app_token=environ.get("SLACK_APP_TOKEN") or None,
        signing_secret=environ.get("SLACK_SIGNING_SECRET") or None,
    )


def _apprise(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from askfirst.delivery.apprise import AppriseDelivery

    return AppriseDelivery(environ["ASKFIRST_APPRISE_URL"].split())


def _email(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from askfirst.delivery.email import EmailDelivery

    return EmailDelivery(environ[SMTP_VARIABLE], to=environ["ASKFIRST_MAIL_TO"].replace(",", " ").split())


def _teams(environ: Mapping[str, str], console: Console | None) -> Delivery:
    from askfirst.delivery.teams import TeamsDelivery

    return TeamsDelivery(environ["ASKFIRST_TEAMS_URL"])


def _auto(environ: Mapping[str, str], console: Console | None) -> Delivery:
    return auto(environ, console=console)


_MAKERS: Mapping[str, Callable[[Mapping[str, str], Console | None], Delivery]] = {
    "auto": _auto,
    "terminal": _terminal,
    "qr": _qr,
    "desktop": _desktop,
    "telegram": _telegram,
    "slack": _slack,
    "email": _email,
    "apprise": _apprise,
    "teams": _teams,
}
NAMES = tuple(_MAKERS)
"""The names that `delivery_named` accepts."""


_MEMBERS = ("name", "shows_buttons", "send", "update")


class FunctionDelivery:
    """A delivery that calls a function with each notice, and again at the end of a case if nobody decided.

    A function that is not async is called in a thread, so that it may block. If it raises, it is called again.
    """

    shows_buttons = False

    def __init__(self, function: Callable[[Notice], object]) -> None:
        self.name = getattr(function, "__name__", "function")
        self._function = function
        call = getattr(function, "__call__", None)  # noqa: B004  (to find out whether it is async)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)

    async def send(self, notice: Notice) -> Sent:
        """Call the function."""
        await self._call(notice)
        return Sent(self.name, notice.case_id)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Call the function once more if the case ended without a decision."""
        if ended.kind != "completed":
            await self._call(Notice(ended.kind, ended.case_id, ended.text))

    async def _call(self, notice: Notice) -> None:
        said = self._function(notice) if self._is_async else await asyncio.to_thread(self._function, notice)
        if inspect.isawaitable(said):
            await cast("Awaitable[object]", said)


def given_deliveries(deliver: Deliver | Sequence[Deliver]) -> list[Delivery]:
    """The deliveries given as ``deliver=``. Raises ``TypeError`` for an invalid value.

    A valid value is a delivery, a name such as ``"telegram"`` (see `delivery_named`), a function of the notice (async
    or not), or a list of these.
    """
    if isinstance(deliver, list | tuple):
        return [_delivery(each) for each in cast("Sequence[Any]", deliver)]
    return [_delivery(deliver)]


def _delivery(given: Any) -> Delivery:
    if isinstance(given, str):
        return delivery_named(given)
    if not isinstance(given, type):
        missing = [name for name in _MEMBERS if not hasattr(given, name)]
        if not missing:
            return given
        if "send" not in missing:
            raise TypeError(f"{_type_of(given)} is not a delivery: it has no {' and no '.join(missing)}")
        if callable(given):
            return FunctionDelivery(given)
    hint = "; make an instance of it first" if isinstance(given, type) else ""
    raise TypeError(
        f"deliver= must be a delivery, a name ({', '.join(NAMES)}), a function of the notice, or a list of these, "
        f"not {_type_of(given)}{hint}"
    )


def _type_of(given: Any) -> str:
    """The type of a value, for an error. The value's ``repr`` is not used, because it may contain a secret."""
    return f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
