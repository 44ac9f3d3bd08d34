"""A local Telegram: a Bot API that makes the platform's checks, and people who press buttons."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 180.0
"""The time-out of `TelegramServer.until`, in seconds."""
TOKEN = "4711:AAF-not_a_real-token_of-any-bot"  # noqa: S105
CHAT = -1001
USER = {"id": 7, "is_bot": False, "first_name": "Ada", "last_name": "Lovelace", "username": "ada"}
STRANGER = {"id": 8, "is_bot": False, "first_name": "Mallory"}
PARAMETERS = {
    "sendMessage": {
        *("chat_id", "text", "entities", "link_preview_options", "reply_markup", "disable_notification"),
        "message_thread_id",
    },
    "editMessageText": {
        *("chat_id", "message_id", "text", "entities", "link_preview_options", "reply_markup"),
    },
    "editMessageReplyMarkup": {"chat_id", "message_id", "reply_markup"},
    "answerCallbackQuery": {"callback_query_id", "text", "show_alert"},
    "setMessageReaction": {"chat_id", "message_id", "reaction"},
    "sendDocument": {"chat_id", "message_thread_id", "document"},
    "getUpdates": {"offset", "timeout", "allowed_updates"},
}


class Refusal(Exception):
    """An answer with ``ok: false``."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        self.code = code
        self.body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
        if parameters:
            self.body["parameters"] = parameters


def bad(description: str) -> Refusal:
    return Refusal(400, f"Bad Request: {description}")


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@dataclass
class TelegramServer:
    """A Bot API server: the calls it received, the messages in its chats, and the refusals to come."""

    url: str = ""
    chats: set[int] = field(default_factory=lambda: {CHAT})
    messages: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    answers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By query id: the text that the person who pressed a button was shown."""
    updates: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Updates that the bot has not confirmed yet."""
    refusals: dict[str, list[Refusal | bytes]] = field(default_factory=dict[str, list[Refusal | bytes]])
    """By method: answers to the next calls. Bytes are sent as they are, and then the connection is closed."""
    reactions: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    old_queries: bool = False
    faults: list[str] = field(default_factory=list[str])
    """Errors that no client may make; the server fails at its end if there are any."""

    def __post_init__(self) -> None:
        self.changed = asyncio.Condition()
        self.polls = 0
        self.connections: set[asyncio.StreamWriter] = set()
        self._poll: asyncio.Task[Any] | None = None
        self._queries: set[str] = set()
        self._count = 100

    # People.

    async def press(
        self,
        message_id: int,
        label: str,
        *,
        user: dict[str, Any] = USER,
        data: str | None = None,
        **chat: Any,
    ) -> str:
        """Press a button by its label, or with forged ``data``. Returns the query's id."""
        message = self.messages[message_id]
        if data is None:
            [data] = [each["callback_data"] for each in self.buttons(message_id) if each["text"] == label]
        query: dict[str, Any] = {
            "id": str(self._number()),
            "from": user,
            "message": {"message_id": message_id, "chat": {"id": message["chat_id"]}, **chat},
            "chat_instance": "1",
            "data": data,
        }
        self._queries.add(query["id"])
        await self.add_update({"callback_query": query})
        return query["id"]

    async def say(self, text: str, *, chat: int = CHAT, user: dict[str, Any] = USER, **more: Any) -> int:
        """Write to the bot; returns the message's id."""
        message_id = self._number()
        message = {"message_id": message_id, "from": user, "chat": {"id": chat}, "text": text, **more}
        await self.add_update({"message": message})
        return message_id

    def posted(self, chat: int = CHAT) -> list[str]:
        """The current texts of the bot's messages in a chat."""
        return [each["text"] for each in self.messages.values() if each["chat_id"] == chat and "text" in each]

    async def add_update(self, update: dict[str, Any]) -> None:
        async with self.changed:
            self.updates.append({"update_id": self._number(), **update})
            self.changed.notify_all()

    async def told(self, query_id: str) -> str:
        """The text that is shown to the person who pressed a button."""
        await self.until(lambda: query_id in self.answers)
        return self.answers[query_id]["text"]

    async def until(self, holds: Any) -> None:
        """Wait until a condition on this server holds."""
        async with asyncio.timeout(PATIENCE), self.changed:
            await self.changed.wait_for(holds)

    def buttons(self, message_id: int) -> list[dict[str, str]]:
        markup = self.messages[message_id].get("reply_markup", {"inline_keyboard": []})
        return [button for row in markup["inline_keyboard"] for button in row]

    def called(self, method: str) -> list[dict[str, Any]]:
        return [parameters for name, parameters in self.calls if name == method]

    def _number(self) -> int:
        self._count += 1
        return self._count

    # The API.

    async def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        prefix, _, method = path.rpartition("/")
        if prefix != f"/bot{TOKEN}":
            return 401, Refusal(401, "Unauthorized").body
        parameters = _form(body) if body.startswith(b"--") else json.loads(body)
        self.calls.append((method, parameters))
        if unknown := set(parameters) - PARAMETERS[method]:
            self.faults.append(f"{method} takes no {unknown}")
        try:
            if self.refusals.get(method):
                refusal = self.refusals[method].pop(0)
                if isinstance(refusal, bytes):
                    return 0, refusal
                raise refusal
            result = await getattr(self, f"do_{method}")(**parameters)
        except Refusal as refusal:
            return refusal.code, refusal.body
        finally:
            async with self.changed:
                self.changed.notify_all()
        return 200, {"ok": True, "result": result}

    async def do_sendMessage(self, chat_id: int, **message: Any) -> Any:  # noqa: N802
        if chat_id not in self.chats:
            raise bad("chat not found")
        self._check(message)
        message_id = self._number()
        self.messages[message_id] = {"chat_id": chat_id, **message}
        return {"message_id": message_id, "chat": {"id": chat_id}, "text": message["text"]}

    async def do_editMessageText(self, chat_id: int, message_id: int, **message: Any) -> Any:  # noqa: N802
        self._check(message)
        return self._edit(chat_id, message_id, message)

    async def do_editMessageReplyMarkup(  # noqa: N802
        self, chat_id: int, message_id: int, reply_markup: dict[str, Any]
    ) -> Any:
        return self._edit(chat_id, message_id, {"reply_markup": reply_markup})

    def _edit(self, chat_id: int, message_id: int, change: dict[str, Any]) -> Any:
        old = self.messages.get(message_id)
        if old is None or old["chat_id"] != chat_id:
            raise bad("message to edit not found")
        new = {**old, **change}
        if all(new.get(part) == old.get(part) for part in ("text", "entities")) and (
            new.get("reply_markup") or {"inline_keyboard": []}
        ) == (old.get("reply_markup") or {"inline_keyboard": []}):
            raise bad(
                "message is not modified: specified new message content and reply markup are exactly the "
                "same as a current content and reply markup of the message"
            )
        self.messages[message_id] = new
        return {"message_id": message_id}

    async def do_answerCallbackQuery(  # noqa: N802
        self, callback_query_id: str, text: str = "", show_alert: bool = False
    ) -> bool:
        if utf16(text) > 200:
            raise bad("MESSAGE_TOO_LONG")
        if callback_query_id not in self._queries or self.old_queries:
            raise bad("query is too old and response timeout expired or query ID is invalid")
        self._queries.remove(callback_query_id)
        self.answers[callback_query_id] = {"text": text, "alert": show_alert}
        return True

    async def do_setMessageReaction(  # noqa: N802
        self, chat_id: int, message_id: int, reaction: list[dict[str, str]]
    ) -> bool:
        self.reactions.append((message_id, reaction[0]["emoji"]))
        return True

    async def do_sendDocument(self, **parameters: Any) -> Any:  # noqa: N802
        message_id = self._number()
        self.messages[message_id] = {**parameters, "chat_id": int(parameters["chat_id"])}
        return {"message_id": message_id}

    async def do_getUpdates(  # noqa: N802
        self, timeout: int, allowed_updates: list[str], offset: int | None = None
    ) -> list[Any]:
        if self._poll is not None:
            self._poll.cancel("another")
        self._poll = current = asyncio.create_task(self._wait(timeout, offset))
        async with self.changed:
            self.polls += 1
            self.changed.notify_all()
        try:
            return await current
        except asyncio.CancelledError:
            if current.cancelled():
                raise Refusal(
                    409,
                    "Conflict: terminated by other getUpdates request; make sure that only one bot instance "
                    "is running",
                ) from None
            raise
        finally:
            if self._poll is current:
                self._poll = None

    async def _wait(self, timeout: int, offset: int | None) -> list[Any]:
        async with self.changed:
            if offset is not None:
                self.updates[:] = [each for each in self.updates if each["update_id"] >= offset]
                self.changed.notify_all()
            if not self.updates and timeout:
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await self.changed.wait_for(lambda: self.updates)
            return list(self.updates)

    def _check(self, message: dict[str, Any]) -> None:
        text = message.get("text", "")
        if not text.strip():
            raise bad("message text is empty")
        if utf16(text) > 4096:
            raise bad("message is too long")
        for entity in message.get("entities", []):
            if entity["length"] < 1 or entity["offset"] + entity["length"] > utf16(text):
                raise bad("can't parse entities")
        for row in message.get("reply_markup", {}).get("inline_keyboard", []):
            for button in row:
                self._check_button(button)

    def _check_button(self, button: dict[str, str]) -> None:
        if not button["text"] or not ("url" in button) ^ ("callback_data" in button):
            raise bad("Text buttons are unallowed in the inline keyboard")
        if not 1 <= len(button.get("callback_data", "x").encode()) <= 64:
            raise bad("BUTTON_DATA_INVALID")
        if "url" in button:
            at = urlsplit(button["url"])
            host = at.hostname or ""
            if at.scheme not in ("http", "https") or "." not in host or ":" in host:
                raise bad(f"inline keyboard button URL '{button['url']}' is invalid: Wrong HTTP URL")

    # Connections.

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): value for name, _, value in (at.partition(": ") for at in head[1:-2])
                }
                if "authorization" in headers or "cookie" in headers:
                    self.faults.append("credentials that are not for us")
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                status, answer = await self.answer(head[0].split(" ")[1], body)
                if not status:
                    writer.write(answer)
                    return
                said = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(said)) + said)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections.discard(writer)
            writer.close()


def _form(body: bytes) -> dict[str, Any]:
    """The fields of a multipart form."""
    boundary, *_ = body.split(b"\r\n", 1)
    found: dict[str, Any] = {}
    for part in body.split(boundary)[1:-1]:
        head, _, value = part.strip(b"\r\n").partition(b"\r\n\r\n")
        name = head.decode().partition('name="')[2].partition('"')[0]
        found[name] = value.decode()
    return found


@asynccontextmanager
async def telegram_server() -> AsyncGenerator[TelegramServer]:
    """Run a server within this context; raises `AssertionError` at the end if a client made an error (`faults`)."""
    server = TelegramServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for connection in list(server.connections):
            connection.close()
        await listener.wait_closed()
    if server.faults:
        raise AssertionError(server.faults)
