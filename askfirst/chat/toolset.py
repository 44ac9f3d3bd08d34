"""ChatToolset: tools with which an agent posts, edits, reacts and uploads in its conversation, behind the gate."""

from __future__ import annotations

from askfirst.agent.tools import Tool, tool
from askfirst.chat.base import Conversation

_MOST_BYTES = 1_000_000


class ChatToolset:
    """The tools of one conversation. With ``require_approval``, the default, a person is asked before each call.

    The tools act only in the conversation that they were made for; no argument names another place.
    """

    def __init__(self, conversation: Conversation, *, require_approval: bool = True) -> None:
        self._conversation = conversation
        self._require_approval = require_approval

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, for ``AgentSpec(tools=[*toolset.tools])``."""
        chat, asks = self._conversation, self._require_approval

        @tool(toolset="chat", requires_approval=asks)
        async def post_message(text: str) -> str:
            """Post a message into this conversation. Returns its id.

            Args:
                text: What it says, as plain text.
            """
            return await chat.platform.post(chat.place, text)

        @tool(toolset="chat", requires_approval=asks)
        async def edit_message(message_id: str, text: str) -> str:
            """Change a message that was posted here by you.

            Args:
                message_id: Its id.
                text: What it says from now on.
            """
            await chat.platform.edit(chat.place, message_id, text)
            return "changed"

        @tool(toolset="chat", requires_approval=asks)
        async def add_reaction(message_id: str, emoji: str) -> str:
            """React to a message of this conversation.

            Args:
                message_id: Its id.
                emoji: The reaction; on Slack a name such as white_check_mark, on Telegram the emoji itself.
            """
            await chat.platform.react(chat.place, message_id, emoji)
            return "reacted"

        @tool(toolset="chat", requires_approval=asks)
        async def upload_file(name: str, content: str) -> str:
            """Upload a text file into this conversation. Returns its id.

            Args:
                name: The file's name.
                content: What is in it.
            """
            data = content.encode()
            if len(data) > _MOST_BYTES:
                return f"not uploaded: a file has at most {_MOST_BYTES:,} bytes"
            return await chat.platform.upload(chat.place, name, data)

        return post_message, edit_message, add_reaction, upload_file
