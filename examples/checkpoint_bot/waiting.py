"""A third process: lists the checkpoints and their pending calls, for a person who has lost the buttons."""

from __future__ import annotations

import asyncio

from bot import CHAT, open_memory

from askfirst.checkpoints import RunCheckpointStore


async def main() -> None:
    async with open_memory() as memory:
        for saved in await RunCheckpointStore(memory).list("support", thread_id=CHAT):
            calls = ", ".join(pending.id for pending in saved.pending)
            print(f"{saved.checkpoint_id} {saved.state}: {calls}")


if __name__ == "__main__":
    asyncio.run(main())
