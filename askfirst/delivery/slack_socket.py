"""Socket Mode: Slack sends interactions over a WebSocket that we open, and we acknowledge each in time.

Slack waits three seconds for an acknowledgement, which may contain an answer. Work that takes longer is acknowledged
first and finished afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from askfirst.delivery.slack_api import BASE_URL, SlackApi, sdk_logger
from askfirst.errors import DeliveryError, MissingExtra

if TYPE_CHECKING:
    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest

logger = logging.getLogger("askfirst.delivery")
ACK_SECONDS = 2.5
"""The seconds after which an envelope is acknowledged, even if its handling is not finished."""
_CLOSE_SECONDS = 30.0

Handle = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Handles one envelope: its type (``interactive``, ``slash_commands``, ``events_api``) and its payload, which come
from Slack itself. Its result is sent with the acknowledgement, unless that was sent before."""


class SocketMode:
    """One connection of an app. Several processes may each have one; Slack gives each envelope to one of them."""

    def __init__(
        self,
        app_token: str,
        handle: Handle,
        *,
        base_url: str = BASE_URL,
        ack_seconds: float = ACK_SECONDS,
        ping_seconds: float = 5.0,
    ) -> None:
        self._api = SlackApi(app_token, "xapp", base_url=base_url)
        self._app_token = app_token
        self._handle = handle
        self._ack_seconds = ack_seconds
        self._ping_seconds = ping_seconds
        self._under_way: set[asyncio.Task[dict[str, Any] | None]] = set()

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Within this context, handle envelopes. At its end, wait for those under way.

        Raises `DeliveryError` if Slack refuses the app's token. A connection that breaks later is opened again.
        """
        try:
            from slack_sdk.socket_mode.aiohttp import SocketModeClient
        except ModuleNotFoundError as error:
            raise MissingExtra("Slack", "slack") from error
        await self._check()
        client = SocketModeClient(
            self._app_token,
            logger=sdk_logger(),
            web_client=self._api.client,
            ping_interval=self._ping_seconds,
        )
        client.socket_mode_request_listeners.append(self._on_envelope)
        try:
            await client.connect()
            yield
        finally:
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=_CLOSE_SECONDS)
            await _close(client)

    async def _check(self) -> None:
        """Ask Slack for one connection, so that a wrong token raises here instead of being retried for ever."""
        try:
            await self._api.call("apps.connections.open")
        except DeliveryError as error:
            if error.permanent:
                raise
            logger.warning("slack: Socket Mode cannot be opened now, and will be tried again: %s", error)

    async def _on_envelope(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        from slack_sdk.socket_mode.response import SocketModeResponse

        payload = cast("dict[str, Any]", request.payload)  # pyright: ignore[reportUnknownMemberType]
        task = asyncio.create_task(self._handle_logged(request.type, payload))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.wait({task}, timeout=self._ack_seconds)
        said = task.result() if task.done() and not task.cancelled() else None
        await client.send_socket_mode_response(SocketModeResponse(request.envelope_id, said))

    async def _handle_logged(self, kind: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return await self._handle(kind, payload)
        except Exception as error:  # one envelope must not end the connection
            logger.error("slack: an envelope could not be handled (%s)", type(error).__name__)
            logger.debug("traceback of the failed envelope", exc_info=error)
            return None


async def _close(client: SocketModeClient) -> None:
    """Close a connection, and wait until the library's own tasks have ended."""
    await client.close()
    parts = cast("Any", client)
    left: list[asyncio.Future[Any] | None] = [
        parts.message_processor,
        parts.current_session_monitor,
        parts.message_receiver,
    ]
    await asyncio.wait([each for each in left if each is not None])
