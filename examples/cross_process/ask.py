"""First process: the agent wants to pay, asks for approval, and the process exits. No process waits."""

from __future__ import annotations

import asyncio
import sys

from desk import STORE, make_agent

from askfirst.checkpointer.connect import checkpointer_from_url


async def main(url: str) -> None:
    async with checkpointer_from_url(url) as checkpointer:
        result = await make_agent(checkpointer).prompt("My kettle leaks. I want my money back.")
    print(f"{result.status}: {result.reason}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else STORE))
