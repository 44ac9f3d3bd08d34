"""The Slack app: its manifest, and a check of an installed app for missing scopes and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from askfirst.delivery.slack_api import BASE_URL, SlackApi, SlackRefused
from askfirst.errors import DeliveryError

NEEDED = ("chat:write", "commands", "channels:read", "groups:read", "users:read", "users:read.email")
"""The scopes that a delivery needs."""
CHAT_NEEDED = (
    "app_mentions:read",
    "channels:history",
    "groups:history",
    "im:history",
    "im:read",
    "files:write",
    "reactions:write",
)
"""The further scopes that an agent in a chat needs."""
EVENTS = ("app_mention", "message.channels", "message.groups", "message.im")


def manifest(name: str = "Askfirst", *, request_url: str | None = None) -> dict[str, Any]:
    """The app's manifest. With ``request_url`` Slack posts signed requests there; otherwise it uses Socket Mode."""
    url = {} if request_url is None else {"request_url": request_url}
    command = {"command": "/askfirst", "description": "What waits for a decision", "usage_hint": "pending"}
    return {
        "display_information": {"name": name, "description": "Agents ask, people decide"},
        "features": {
            "app_home": {"messages_tab_enabled": True, "messages_tab_read_only_enabled": False},
            "bot_user": {"display_name": name, "always_online": True},
            "slash_commands": [
                {**command, "should_escape": False, **({"url": request_url} if request_url else {})}
            ],
        },
        "oauth_config": {"scopes": {"bot": sorted((*NEEDED, *CHAT_NEEDED))}},
        "settings": {
            "event_subscriptions": {"bot_events": list(EVENTS), **url},
            "interactivity": {"is_enabled": True, **url},
            "socket_mode_enabled": request_url is None,
        },
    }


async def missing(
    bot_token: str | None,
    app_token: str | None,
    channel: str | None,
    *,
    signing_secret: str | None = None,
    base_url: str = BASE_URL,
) -> list[str]:
    """What is missing, one sentence each; an empty list if messages can be sent and presses taken."""
    found = await _bot_faults(bot_token, channel, base_url)
    if app_token:
        found += await _as_list(_open_socket(app_token, base_url))
    elif not signing_secret:
        found.append(
            "Buttons do not work: set SLACK_APP_TOKEN (xapp-…, scope connections:write) for Socket Mode, or "
            "SLACK_SIGNING_SECRET for signed requests."
        )
    return found


async def _bot_faults(bot_token: str | None, channel: str | None, base_url: str) -> list[str]:
    if not bot_token:
        return ["SLACK_BOT_TOKEN is not set: it is on the app's page under OAuth & Permissions, xoxb-…"]
    try:
        api = SlackApi(bot_token, base_url=base_url)
        _, headers = await api.call_with_headers("auth.test")
    except DeliveryError as error:
        return [f"{error.problem}."]
    scopes = _scopes(headers)
    found = [
        f"The scope {each} is missing: add it, and install the app again."
        for each in NEEDED
        if each not in scopes
    ]
    lacking = [each for each in CHAT_NEEDED if each not in scopes]
    if lacking:
        found.append(f"For agents in a chat these scopes are missing: {', '.join(lacking)}.")
    if not channel:
        found.append("SLACK_CHANNEL is not set: the id of a channel, such as C024BE7LD.")
    elif "channels:read" in scopes:
        found += await _as_list(_channel_fault(api, channel))
    return found


def _scopes(headers: Mapping[str, str]) -> set[str]:
    text = next((value for name, value in headers.items() if name.lower() == "x-oauth-scopes"), "")
    return {each.strip() for each in text.split(",")}


async def _channel_fault(api: SlackApi, channel: str) -> str | None:
    if channel.startswith("#"):
        return f"{channel} is a name: use the channel's id (at the foot of its details), so that it can be checked."
    try:
        info = await api.call("conversations.info", {"channel": channel})
    except SlackRefused as error:
        return f"The channel {channel}: {error.problem}."
    if info["channel"].get("is_archived"):
        return f"The channel {channel} is archived."
    return (
        None
        if info["channel"].get("is_member")
        else f"The app is not a member of {channel}: write /invite there."
    )


async def _open_socket(app_token: str, base_url: str) -> str | None:
    await SlackApi(app_token, "xapp", base_url=base_url).call("apps.connections.open")
    return None


async def _as_list(check: Any) -> list[str]:
    """The sentence of a check as a list; empty if the check found nothing."""
    try:
        said: str | None = await check
    except DeliveryError as error:
        said = f"{error.problem}."
    return [said] if said else []
