"""One process: a customer writes, the agent wants to act, and the bot posts buttons. Then the process may end."""

from __future__ import annotations

import asyncio

from bot import CHAT, make_spec, open_memory, post

from askfirst import run_agent
from askfirst.checkpoints import RunCheckpointStore


async def main() -> None:
    async with open_memory() as memory:
        result = await run_agent(make_spec(), "Cancel order A-1042, I want my money back.")
        if result.checkpoint is not None:
            await RunCheckpointStore(memory).save("support", result.checkpoint, thread_id=CHAT)
        post(result)  # after the checkpoint is saved, so that every posted button works


if __name__ == "__main__":
    asyncio.run(main())
