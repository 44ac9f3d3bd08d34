"""Telegram on this machine: the server of the examples, by the names that tests use."""

from __future__ import annotations

from examples.local_telegram import (
    CHAT,
    STRANGER,
    TOKEN,
    USER,
    Refusal,
    TelegramServer,
    bad,
    telegram_server,
    utf16,
)

__all__ = [
    "CHAT",
    "STRANGER",
    "TOKEN",
    "USER",
    "Refusal",
    "TelegramServer",
    "bad",
    "telegram_server",
    "utf16",
]
