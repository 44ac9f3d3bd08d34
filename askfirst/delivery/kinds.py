"""The kinds of deliveries that a configuration can name, each with its settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from askfirst.delivery.base import Delivery
from askfirst.smtp import SMTP_VARIABLE

_TELEGRAM_USER = re.compile(r"[1-9][0-9]{0,19}")
_SLACK_USER = re.compile(r"[TE][A-Z0-9]+:[UW][A-Z0-9]+")
_BY_ADDRESS = "an address counts only with by_address = true in this delivery"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a delivery. ``variable`` is the environment variable that is read if nothing else is given.

    A secret must not be in the configuration file, which others may read. It comes from the environment, or from a
    file of its own that the configuration names.
    """

    name: str
    type: Literal["text", "texts", "number", "flag", "secret", "secrets"]
    variable: str | None = None
    is_required: bool = True

    @property
    def is_secret(self) -> bool:
        """Whether the value must not be in the configuration file itself."""
        return self.type in ("secret", "secrets")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of delivery: its settings, and the function that makes a delivery from them."""

    name: str
    settings: tuple[Setting, ...]
    make: Callable[[Mapping[str, Any]], Delivery]
    """Makes a delivery from the given settings, by name. It loads the libraries, and raises `DeliveryError`."""
    platform: str | None = None
    """The prefix of accounts, if people can press buttons there: ``telegram`` for ``telegram:1001``."""
    account_fault: Callable[[str, Mapping[str, Any]], str | None] = lambda account, settings: None
    """Checks an account of ``deciders`` with the delivery's settings: a sentence about its fault, or None."""

    @property
    def required_variables(self) -> tuple[str, ...]:
        """The environment variables that must all be set, so that the kind counts as configured."""
        return tuple(it.variable for it in self.settings if it.is_required and it.variable is not None)


def _terminal(given: Mapping[str, Any]) -> Delivery:
    from askfirst.delivery.terminal import TerminalDelivery

    return TerminalDelivery()


def _email(given: Mapping[str, Any]) -> Delivery:
    from askfirst.delivery.email import EmailDelivery

    return EmailDelivery(
        given["smtp_url"],
        to=given["to"],
        from_=given.get("from"),
        in_clear=given.get("in_clear", False),
        outcomes=True,
    )


def _telegram(given: Mapping[str, Any]) -> Delivery:
    from askfirst.delivery.telegram import TelegramDelivery

    api = {"base_url": given["api_url"]} if "api_url" in given else {}
    return TelegramDelivery(given["token"], given["chat"], **api)


def _slack(given: Mapping[str, Any]) -> Delivery:
    from askfirst.delivery.slack import SlackDelivery

    api = {"base_url": given["api_url"]} if "api_url" in given else {}
    return SlackDelivery(
        given["bot_token"],
        given["channel"],
        app_token=given.get("app_token"),
        signing_secret=given.get("signing_secret"),
        asks_address=given.get("by_address", False),
        **api,
    )


def _apprise(given: Mapping[str, Any]) -> Delivery:
    from askfirst.delivery.apprise import AppriseDelivery

    return AppriseDelivery(given["urls"], outcomes=True)


def _teams(given: Mapping[str, Any]) -> Delivery:
    from askfirst.delivery.teams import TeamsDelivery

    return TeamsDelivery(given["url"], in_clear=given.get("in_clear", False))


def _telegram_account(account: str, settings: Mapping[str, Any]) -> str | None:
    if _TELEGRAM_USER.fullmatch(account):
        return None
    return f"{account!r} is not a Telegram user: write the user's number, such as 1001, never a name"


def _slack_account(account: str, settings: Mapping[str, Any]) -> str | None:
    if _SLACK_USER.fullmatch(account):
        return None
    if "@" not in account:
        return f"{account!r} is not a Slack user: write workspace and member id, as in T024BE7LD:U2147483697"
    return None if settings.get("by_address") else _BY_ADDRESS


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("terminal", (), _terminal),
        Kind(
            "telegram",
            (
                Setting("token", "secret", "TELEGRAM_BOT_TOKEN"),
                Setting("chat", "number", "TELEGRAM_CHAT_ID"),
                Setting("api_url", "text", is_required=False),
            ),
            _telegram,
            platform="telegram",
            account_fault=_telegram_account,
        ),
        Kind(
            "slack",
            (
                Setting("bot_token", "secret", "SLACK_BOT_TOKEN"),
                Setting("channel", "text", "SLACK_CHANNEL"),
                Setting("app_token", "secret", "SLACK_APP_TOKEN", is_required=False),
                Setting("signing_secret", "secret", "SLACK_SIGNING_SECRET", is_required=False),
                Setting("by_address", "flag", is_required=False),
                Setting("api_url", "text", is_required=False),
            ),
            _slack,
            platform="slack",
            account_fault=_slack_account,
        ),
        Kind("apprise", (Setting("urls", "secrets", "ASKFIRST_APPRISE_URL"),), _apprise),
        Kind(
            "email",
            (
                Setting("to", "texts", "ASKFIRST_MAIL_TO"),
                Setting("smtp_url", "secret", SMTP_VARIABLE),
                Setting("from", "text", is_required=False),
                Setting("in_clear", "flag", is_required=False),
            ),
            _email,
        ),
        Kind(
            "teams",
            (
                Setting("url", "secret", "ASKFIRST_TEAMS_URL"),
                Setting("in_clear", "flag", is_required=False),
            ),
            _teams,
        ),
    )
}
"""The kinds by name. A delivery of your own kind is passed to `create_app(deliver=…)`."""
