"""Second process: lists the open requests and answers them. It needs no agent, no tool and no model."""

from __future__ import annotations

import asyncio
import json
import sys

from desk import STORE

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.hitl import ApproveAnswer, ApproveRequest


async def main(url: str) -> None:
    async with checkpointer_from_url(url) as checkpointer:
        waiting = await checkpointer.pending()
        if not waiting:
            print("nothing waits for an answer")
        for stored in waiting:
            asked = stored.request.payload
            if isinstance(asked, ApproveRequest):
                print(f"{stored.thread_id} asks: {asked.tool_name} {json.dumps(asked.args)}")
                answer = ApproveAnswer(decision="approve")
                await checkpointer.settle(
                    stored.thread_id, stored.question_id, answer, by="ann", via="example"
                )
                print("approved")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else STORE))
