"""A Slack workspace on this machine: a simulation of the Web API, Socket Mode and signed requests.

It makes Slack's checks: tokens and scopes, channels that the app is not a member of, limits of text and blocks,
expired trigger ids, rate limits. People act through `People`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import secrets
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from .limits import Json, Refusal, check_message, check_view, text_of

BOT_TOKEN = "xoxb-1111-2222-notARealTokenOfAnyApp"  # noqa: S105
APP_TOKEN = "xapp-1-A0LOCAL-3333-notARealTokenEither"  # noqa: S105
SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"  # noqa: S105
TEAM = "T0LOCAL"
BOT_USER = "U0BOT"
CHANNEL = "C0OPS"
SCOPES = frozenset(
    {
        *("app_mentions:read", "channels:history", "channels:read", "chat:write", "commands", "files:write"),
        *("groups:history", "groups:read", "im:history", "im:read", "reactions:write", "users:read"),
        "users:read.email",
    }
)
_NEEDS = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "chat.postEphemeral": "chat:write",
    "conversations.info": "channels:read",
    "users.info": "users:read",
    "reactions.add": "reactions:write",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
}
PER_MINUTE = {"chat.postMessage": 60, "chat.update": 50, "chat.postEphemeral": 100, "views.open": 100}
"""The most calls of a method per minute and channel."""
_METHODS = (
    *("auth.test", "apps.connections.open", "chat.postMessage", "chat.update", "chat.postEphemeral"),
    *("conversations.info", "users.info", "views.open", "views.update", "reactions.add"),
    *("files.getUploadURLExternal", "files.completeUploadExternal"),
)
_RETRIES = 3
_TURNS_TO_ACCEPT = 3
"""The turns of the event loop until the runner knows an accepted connection, and so closes it."""


@dataclass
class Delivered:
    """The result of a delivery to the app: whether it was acknowledged in time, and with which payload."""

    envelope_id: str
    acked: bool = False
    payload: Json = field(default_factory=dict[str, Any])


@dataclass
class LocalSlack:
    """The workspace: its users, channels and messages, the calls it received, and the refusals to come."""

    ack_seconds: float = 3.0
    """How long the app has to acknowledge a delivery."""
    trigger_seconds: float = 3.0
    clock: Callable[[], float] = time.time
    url: str = ""
    """The base of the Web API, such as ``http://127.0.0.1:1234/api/``."""
    scopes: set[str] = field(default_factory=lambda: set(SCOPES))
    has_socket_mode: bool = True
    request_url: str | None = None
    """The URL for signed requests; None for Socket Mode."""
    users: dict[str, Json] = field(default_factory=dict[str, Json])
    channels: dict[str, Json] = field(default_factory=dict[str, Json])
    messages: dict[tuple[str, str], Json] = field(default_factory=dict[tuple[str, str], Json])
    ephemerals: list[Json] = field(default_factory=list[Json])
    views: dict[str, Json] = field(default_factory=dict[str, Json])
    reactions: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    files: dict[str, Json] = field(default_factory=dict[str, Json])
    calls: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    refusals: dict[str, list[Refusal]] = field(default_factory=dict[str, list[Refusal]])
    """By method: refusals with which to answer the next calls."""
    envelopes: int = 0
    connections: int = 0

    def __post_init__(self) -> None:
        self.changed = asyncio.Condition()
        self.sockets: list[web.WebSocketResponse] = []
        self._tickets: set[str] = set()
        self._acks: dict[str, asyncio.Future[Json]] = {}
        self._unacked: dict[str, Json] = {}
        self._triggers: dict[str, float] = {}
        self._count = itertools.count(1)
        self._recent: defaultdict[tuple[str, str], deque[float]] = defaultdict(deque)
        self.channels[CHANNEL] = {"id": CHANNEL, "name": "ops", "is_member": True, "is_private": False}

    # The state of the workspace.

    async def until(self, holds: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until a condition on this workspace holds."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(lambda: bool(holds()))

    async def notify(self) -> None:
        """Wake tasks that wait in `until`, because something may have changed."""
        async with self.changed:
            self.changed.notify_all()

    def in_channel(self, channel: str, thread_ts: str | None = None) -> list[Json]:
        """The messages of a channel, or of a thread in it, oldest first."""
        return [
            each
            for (where, _), each in sorted(self.messages.items(), key=lambda item: item[0][1])
            if where == channel and (thread_ts is None or each.get("thread_ts") == thread_ts)
        ]

    def text(self, channel: str, ts: str) -> str:
        """What a person reads in a message."""
        return text_of(self.messages[channel, ts])

    def called(self, method: str) -> list[Json]:
        """The arguments of every call of a method."""
        return [arguments for name, arguments in self.calls if name == method]

    def new_ts(self) -> str:
        """The id of a new message: the time and a unique number."""
        return f"{int(self.clock())}.{next(self._count):06d}"

    def new_trigger(self) -> str:
        """An id that lets the app open one modal, for a short time."""
        trigger = f"{next(self._count)}.{secrets.token_hex(6)}"
        self._triggers[trigger] = self.clock() + self.trigger_seconds
        return trigger

    # Deliveries to the app.

    async def deliver(self, kind: str, payload: Json) -> Delivered:
        """Deliver an interaction, command or event to the app, and wait for its acknowledgement.

        Events that are not acknowledged are sent again, marked as retries; other deliveries are lost.
        """
        if self.request_url is not None:
            return await self._post(kind, payload)
        envelope: Json = {
            "envelope_id": secrets.token_hex(8),
            "type": kind,
            "payload": payload,
            "accepts_response_payload": kind != "events_api",
        }
        if kind == "events_api":
            self._unacked[envelope["envelope_id"]] = {**envelope, "retry_attempt": 0}
        return await self._send(envelope)

    async def _send(self, envelope: Json) -> Delivered:
        delivered = Delivered(str(envelope["envelope_id"]))
        live = [each for each in self.sockets if not each.closed]
        if not live:
            return delivered
        self.envelopes += 1
        socket = live[self.envelopes % len(live)]
        ack = self._acks[delivered.envelope_id] = asyncio.get_running_loop().create_future()
        try:
            await socket.send_str(json.dumps(envelope))
            async with asyncio.timeout(self.ack_seconds):
                delivered.payload = await ack
            delivered.acked = True
            self._unacked.pop(delivered.envelope_id, None)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._acks.pop(delivered.envelope_id, None)
        return delivered

    async def send_again(self) -> None:
        """Send events that were not acknowledged again, as Slack does after a while."""
        for envelope_id, envelope in list(self._unacked.items()):
            if envelope_id in self._acks:
                continue  # it is being delivered
            envelope["retry_attempt"] += 1
            envelope["retry_reason"] = "timeout"
            if envelope["retry_attempt"] > _RETRIES:
                self._unacked.pop(envelope_id)
            else:
                await self._send(envelope)

    async def _post(self, kind: str, payload: Json, **headers: str) -> Delivered:
        assert self.request_url is not None  # noqa: S101
        delivered = Delivered(secrets.token_hex(8))
        if kind == "events_api":
            body, content = json.dumps(payload), "application/json"
        else:
            fields = {"payload": json.dumps(payload)} if kind == "interactive" else payload
            body, content = urlencode(fields), "application/x-www-form-urlencoded"
        signed = self.signed(body.encode())
        try:
            async with (
                asyncio.timeout(self.ack_seconds),
                aiohttp.ClientSession() as http,
                http.post(
                    self.request_url,
                    data=body.encode(),
                    headers={**signed, "Content-Type": content, **headers},
                ) as said,
            ):
                text = await said.text()
                delivered.acked = said.status == 200
                delivered.payload = json.loads(text) if text.startswith("{") else {"text": text}
        except (TimeoutError, aiohttp.ClientError):
            pass
        if not delivered.acked and kind == "events_api" and not headers:
            return await self._post(
                kind, payload, **{"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_timeout"}
            )
        return delivered

    def signed(self, body: bytes, *, secret: str = SIGNING_SECRET, at: float | None = None) -> dict[str, str]:
        """The headers with which Slack signs a request."""
        stamp = str(int(self.clock() if at is None else at))
        said = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={said}"}

    # The Web API.

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a call of the Web API."""
        method = request.match_info["method"]
        posted = await request.post()
        arguments: Json = {name: _value(str(value)) for name, value in posted.items()}
        if request.content_type == "application/json":
            arguments = await request.json()
        arguments |= {name: _value(value) for name, value in request.query.items()}
        self.calls.append((method, arguments))
        headers = {"X-OAuth-Scopes": ",".join(sorted(self.scopes))}
        try:
            self._check_token(method, request.headers.get("Authorization", ""))
            if self.refusals.get(method):
                raise self.refusals[method].pop(0)
            self._check_rate(method, str(arguments.get("channel", "")))
            do = cast("Callable[[Json], Awaitable[Json]]", getattr(self, "_do_" + method.replace(".", "_")))
            said: Json = {"ok": True, **await do(arguments)}
            status = 200
        except Refusal as refusal:
            said = {"ok": False, "error": refusal.error, "needed": _NEEDS.get(method, "")}
            said["response_metadata"] = {"messages": refusal.messages}
            status = 200
            if refusal.retry_after is not None:
                status, headers["Retry-After"] = 429, str(refusal.retry_after)
        await self.notify()
        return web.json_response(said, status=status, headers=headers)

    def _check_token(self, method: str, said: str) -> None:
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if method not in _METHODS:
            raise Refusal("unknown_method")
        if not said:
            raise Refusal("not_authed")
        if said != f"Bearer {wanted}":
            raise Refusal("not_allowed_token_type" if said[7:] in (APP_TOKEN, BOT_TOKEN) else "invalid_auth")
        if (scope := _NEEDS.get(method)) is not None and scope not in self.scopes:
            raise Refusal("missing_scope")

    def _check_rate(self, method: str, channel: str) -> None:
        most = PER_MINUTE.get(method)
        if most is None:
            return
        recent, now = self._recent[method, channel], self.clock()
        while recent and recent[0] <= now - 60:
            recent.popleft()
        if len(recent) >= most:
            raise Refusal("ratelimited", retry_after=max(1, int(recent[0] + 60 - now) + 1))
        recent.append(now)

    def _channel(self, arguments: Json) -> Json:
        said = str(arguments.get("channel"))
        named = [each for each in self.channels.values() if said == f"#{each['name']}"]
        channel = self.channels.get(said) or next(iter(named), None)
        if channel is None:
            raise Refusal("channel_not_found")
        return channel

    async def _do_auth_test(self, _: Json) -> Json:
        return {"team_id": TEAM, "team": "Local", "user_id": BOT_USER, "bot_id": "B0BOT", "user": "askfirst"}

    async def _do_apps_connections_open(self, _: Json) -> Json:
        if not self.has_socket_mode:
            raise Refusal("socket_mode_not_enabled")
        ticket = secrets.token_urlsafe(12)
        self._tickets.add(ticket)
        return {"url": f"{self.url.replace('http', 'ws', 1).removesuffix('api/')}link?ticket={ticket}"}

    async def _do_chat_postMessage(self, arguments: Json) -> Json:  # noqa: N802
        channel = self._channel(arguments)
        if not channel["is_member"]:
            raise Refusal("not_in_channel")
        check_message(arguments)
        thread = arguments.get("thread_ts")
        if thread is not None and (channel["id"], thread) not in self.messages:
            raise Refusal("thread_not_found")
        ts = self.new_ts()
        message = {**arguments, "ts": ts, "user": BOT_USER, "bot_id": "B0BOT"}
        self.messages[channel["id"], ts] = message
        return {"channel": channel["id"], "ts": ts, "message": message}

    async def _do_chat_update(self, arguments: Json) -> Json:
        key = (str(arguments["channel"]), str(arguments["ts"]))
        old = self.messages.get(key)
        if old is None:
            raise Refusal("message_not_found")
        if old.get("user") != BOT_USER:
            raise Refusal("cant_update_message")
        check_message(arguments, is_update=True)
        kept = {name: old[name] for name in ("thread_ts", "user", "bot_id") if name in old}
        self.messages[key] = {**kept, **arguments}
        return {"channel": key[0], "ts": key[1], "text": arguments.get("text", "")}

    async def _do_chat_postEphemeral(self, arguments: Json) -> Json:  # noqa: N802
        self._channel(arguments)
        check_message(arguments)
        if arguments.get("user") not in self.users:
            raise Refusal("user_not_in_channel")
        self.ephemerals.append(arguments)
        return {"message_ts": self.new_ts()}

    async def _do_conversations_info(self, arguments: Json) -> Json:
        return {"channel": self._channel(arguments)}

    async def _do_users_info(self, arguments: Json) -> Json:
        user = self.users.get(str(arguments.get("user")))
        if user is None:
            raise Refusal("user_not_found")
        profile = dict(user["profile"])
        if "users:read.email" not in self.scopes:
            profile.pop("email", None)
        return {"user": {**user, "profile": profile}}

    async def _do_views_open(self, arguments: Json) -> Json:
        ends_at = self._triggers.pop(str(arguments.get("trigger_id")), None)
        if ends_at is None:
            raise Refusal("exchanged_trigger_id")
        if self.clock() > ends_at:
            raise Refusal("expired_trigger_id")
        view = cast(Json, arguments["view"])
        check_view(view)
        view_id = f"V{next(self._count)}"
        self.views[view_id] = {**view, "id": view_id, "hash": secrets.token_hex(4), "team_id": TEAM}
        return {"view": self.views[view_id]}

    async def _do_views_update(self, arguments: Json) -> Json:
        old = self.views.get(str(arguments.get("view_id")))
        if old is None:
            raise Refusal("not_found")
        view = cast(Json, arguments["view"])
        check_view(view)
        self.views[old["id"]] = {**old, **view}
        return {"view": self.views[old["id"]]}

    async def _do_reactions_add(self, arguments: Json) -> Json:
        key = (str(arguments["channel"]), str(arguments["timestamp"]), str(arguments["name"]))
        if key[:2] not in self.messages:
            raise Refusal("message_not_found")
        if key in self.reactions:
            raise Refusal("already_reacted")
        self.reactions.append(key)
        return {}

    async def _do_files_getUploadURLExternal(self, arguments: Json) -> Json:  # noqa: N802
        file_id = f"F{next(self._count)}"
        self.files[file_id] = {"name": arguments["filename"], "length": int(arguments["length"])}
        return {"file_id": file_id, "upload_url": f"{self.url.removesuffix('api/')}upload/{file_id}"}

    async def _do_files_completeUploadExternal(self, arguments: Json) -> Json:  # noqa: N802
        for each in cast("list[Json]", arguments["files"]):
            known = self.files.get(each["id"])
            if known is None or len(known.get("content", b"")) != known["length"]:
                raise Refusal("invalid_arguments", "the file was not uploaded")
            known |= {"channel": arguments.get("channel_id"), "thread_ts": arguments.get("thread_ts")}
        return {"files": arguments["files"]}

    async def upload(self, request: web.Request) -> web.Response:
        """Receive the bytes of a file."""
        self.files[request.match_info["file_id"]]["content"] = await request.read()
        return web.Response(text="OK", content_type="text/plain")

    # Socket Mode.

    async def link(self, request: web.Request) -> web.WebSocketResponse:
        """A Socket Mode connection: hello, envelopes, acknowledgements."""
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            raise web.HTTPForbidden
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(json.dumps({"type": "hello", "num_connections": len(self.sockets) + 1}))
        self.sockets.append(socket)
        self.connections += 1
        await self.notify()
        again = asyncio.create_task(self.send_again())
        try:
            async for said in socket:
                if said.type == aiohttp.WSMsgType.TEXT:
                    ack: Json = json.loads(said.data)
                    waiting = self._acks.get(str(ack.get("envelope_id")))
                    if waiting is not None and not waiting.done():
                        waiting.set_result(ack.get("payload") or {})
        finally:
            self.sockets.remove(socket)
            again.cancel()
            await self.notify()
        return socket

    async def cut_connections(self) -> None:
        """Close every Socket Mode connection without a warning, as Slack does every few hours."""
        for socket in list(self.sockets):
            await socket.close()


def _value(text: str) -> Any:
    """An argument decoded from a form field: objects and lists are JSON there."""
    return json.loads(text) if text[:1] in ("{", "[") else text


@asynccontextmanager
async def local_slack(**options: Any) -> AsyncGenerator[LocalSlack]:
    """A workspace for as long as the block runs."""
    slack = LocalSlack(**options)
    app = web.Application(client_max_size=50_000_000)
    app.router.add_route("*", "/api/{method}", slack.answer)
    app.router.add_get("/link", slack.link)
    app.router.add_post("/upload/{file_id}", slack.upload)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    slack.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/"
    try:
        yield slack
    finally:
        await slack.cut_connections()
        await site.stop()
        for _ in range(_TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        await runner.cleanup()
