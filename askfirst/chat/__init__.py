"""Agents in a chat: they answer in Slack and Telegram threads, and ask for approval there.

The public names, loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from askfirst.lazy import exports

if TYPE_CHECKING:
    from askfirst.chat.base import ChatError, ChatPlace, Conversation, Said
    from askfirst.chat.server import ChannelServer, serve_channels
    from askfirst.chat.slack import SlackChat
    from askfirst.chat.telegram import TelegramChat
    from askfirst.chat.toolset import ChatToolset

_HOMES = {
    "ChannelServer": "server",
    "ChatError": "base",
    "ChatPlace": "base",
    "ChatToolset": "toolset",
    "Conversation": "base",
    "Said": "base",
    "SlackChat": "slack",
    "TelegramChat": "telegram",
    "serve_channels": "server",
}

__all__ = [
    "ChannelServer",
    "ChatError",
    "ChatPlace",
    "ChatToolset",
    "Conversation",
    "Said",
    "SlackChat",
    "TelegramChat",
    "serve_channels",
]

__getattr__, __dir__ = exports(globals(), _HOMES)
