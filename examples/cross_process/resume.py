"""Third process: resumes the run that the first process left. A second run of it changes nothing."""

from __future__ import annotations

import asyncio
import sys

from desk import STORE, make_agent

from askfirst.checkpointer.connect import checkpointer_from_url


async def main(url: str) -> None:
    async with checkpointer_from_url(url) as checkpointer:
        result = await make_agent(checkpointer).resume()
    print(f"{result.status}: {result.text or result.reason}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else STORE))
