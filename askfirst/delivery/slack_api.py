"""Slack's Web API for one app: refusals become errors, and tokens are in no error and no log."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from askfirst.delivery.text import cut
from askfirst.errors import DeliveryError, MissingExtra
from askfirst.visible_text import visible

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

NAME = "slack"
BASE_URL = "https://slack.com/api/"
CALL_SECONDS = 15
_TOKEN = re.compile(r"(xoxb|xapp)-[\w-]{8,}", re.ASCII)
_TOKEN_FORMS = {
    "xoxb": "a bot's token looks like xoxb-…, as the app's page gives it under OAuth & Permissions",
    "xapp": "an app's token for Socket Mode looks like xapp-…, and has the scope connections:write",
}
_SECRETS = re.compile(r"xox[a-z]-[\w-]+|xapp-[\w-]+|wss?://\S+|https?://\S+", re.ASCII)
_ERROR_LENGTH = 160
_READS = frozenset({"auth.test", "conversations.info", "users.info", "files.getUploadURLExternal"})
"""Methods that take their arguments in the URL's query, not as JSON."""
_TRANSIENT = frozenset(
    {
        *("ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable"),
        *("request_timeout", "team_added_to_org", "accesslimited", "unknown"),
    }
)
_SENTENCES = {
    "account_inactive": "the app was removed from the workspace: install it again",
    "channel_not_found": "there is no such channel, or the app cannot see it: invite it with /invite",
    "invalid_auth": "Slack does not know this token: check it",
    "is_archived": "the channel is archived",
    "missing_scope": "the app lacks a scope",
    "not_allowed_token_type": "this is a token of another kind: bots have xoxb-, Socket Mode needs xapp-",
    "not_authed": "there is no token",
    "not_in_channel": "the app is not a member of the channel: invite it with /invite",
    "ratelimited": "Slack's rate limit is reached",
    "socket_mode_not_enabled": "Socket Mode is switched off for this app",
    "token_revoked": "the token was revoked: install the app again",
}


class SlackRefused(DeliveryError):
    """Slack refused a call; ``error`` is Slack's error code."""

    def __init__(self, error: str, *, needed: str = "", retry_after: float | None = None) -> None:
        said = cut(visible(error), _ERROR_LENGTH)
        sentence = _SENTENCES.get(error)
        more = f"{said}: {visible(needed)}" if needed and error == "missing_scope" else said
        super().__init__(
            NAME,
            f"{sentence} ({more})" if sentence else f"Slack answered {said!r}",
            retry_after=retry_after,
            permanent=error not in _TRANSIENT,
        )
        self.error = error


class _NoSecrets(logging.Filter):
    """Removes tokens and URLs from the log records of Slack's library."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = without_secrets(record.getMessage()), None
        record.exc_info = record.exc_text = None
        return True


def without_secrets(text: str) -> str:
    """A text of Slack or its library, without tokens and URLs."""
    return _SECRETS.sub("…", text)


def sdk_logger() -> logging.Logger:
    """The logger for Slack's library.

    It logs warnings only, without tokens: below that, the library logs messages.
    """
    logger = logging.getLogger("askfirst.delivery.slack_sdk")
    if not logger.filters:
        logger.addFilter(_NoSecrets())
        logger.setLevel(logging.WARNING)
    return logger


class SlackApi:
    """The Web API for one app, by its bot token (``xoxb``), or by its app token (``xapp``) for Socket Mode."""

    def __init__(
        self, token: str, kind: Literal["xoxb", "xapp"] = "xoxb", *, base_url: str = BASE_URL
    ) -> None:
        found = _TOKEN.fullmatch(token)
        if found is None or found[1] != kind:
            raise DeliveryError(NAME, _TOKEN_FORMS[kind], permanent=True)
        try:
            from slack_sdk.web.async_client import AsyncWebClient
        except ModuleNotFoundError as error:
            raise MissingExtra("Slack", "slack") from error
        self.client: AsyncWebClient = AsyncWebClient(
            token,
            base_url,
            timeout=CALL_SECONDS,
            retry_handlers=[],  # the sender stores its messages and retries
            logger=sdk_logger(),
        )
        """Slack's own client."""

    async def call(self, method: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The result of a method. Raises `SlackRefused`, or another `DeliveryError` if no answer came in time."""
        body, _ = await self.call_with_headers(method, arguments)
        return body

    async def call_with_headers(
        self, method: str, arguments: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        """The same as `call`, with the response's headers, which name the token's scopes."""
        return await _call(self.client, method, arguments or {})

    async def upload(self, url: str, content: bytes) -> None:
        """Upload the bytes of a file to the URL that Slack gave for it."""
        import aiohttp

        try:
            async with (
                asyncio.timeout(CALL_SECONDS * 4),
                aiohttp.ClientSession() as http,
                http.post(url, data=content, allow_redirects=False) as said,
            ):
                if said.status != 200:
                    raise DeliveryError(NAME, f"Slack did not take the file ({said.status})")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise DeliveryError(NAME, f"Slack did not take the file ({type(error).__name__})") from None


async def _call(
    client: AsyncWebClient, method: str, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, str]]:
    import aiohttp
    from slack_sdk.errors import SlackApiError, SlackClientError

    try:
        if method in _READS:
            said = await cast("Any", client).api_call(method, http_verb="GET", params=dict(arguments))
        else:
            said = await cast("Any", client).api_call(method, json=dict(arguments))
    except SlackApiError as error:
        raise _refusal(error.response) from None
    except TimeoutError:
        problem = f"Slack did not answer within {CALL_SECONDS} seconds"
    except (aiohttp.ClientError, OSError, SlackClientError, ValueError) as error:
        problem = f"Slack could not be reached ({type(error).__name__})"
    else:
        return cast("dict[str, Any]", said.data), cast("Mapping[str, str]", said.headers)
    raise DeliveryError(NAME, problem)


def _refusal(response: Any) -> DeliveryError:
    """Slack's response as an error. A response that does not come from Slack is worth a retry."""
    status = getattr(response, "status_code", None) or getattr(response, "status", 0)
    data: Any = getattr(response, "data", None)
    if not isinstance(data, dict):
        return DeliveryError(NAME, f"the response is not from Slack ({status})")
    body = cast("dict[str, Any]", data)
    headers: Mapping[str, str] = getattr(response, "headers", {})
    after = headers.get("Retry-After") or headers.get("retry-after")
    seconds = float(after) if after and after.isdigit() else None
    error = "ratelimited" if status == 429 else str(body.get("error") or "unknown")
    return SlackRefused(error, needed=str(body.get("needed") or ""), retry_after=seconds)
