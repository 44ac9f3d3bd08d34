"""Another process, perhaps days later: somebody presses a button. If they press it twice, nothing happens twice."""

from __future__ import annotations

import asyncio
import sys

from bot import CHAT, make_spec, open_memory, post

from askfirst import ApprovalResponse
from askfirst.checkpoints import (
    CheckpointNotFound,
    CheckpointNotPendingError,
    RunCheckpointStore,
    resume_checkpoint,
)
from askfirst.errors import HitlStaleAnswer, InvalidCheckpoint


async def main(checkpoint_id: str, pending_id: str, decision: str) -> None:
    async with open_memory() as memory:
        store = RunCheckpointStore(memory)
        try:
            response = ApprovalResponse(
                id=pending_id, decision="approve" if decision == "approve" else "deny"
            )
            result = await resume_checkpoint(
                make_spec(), checkpoint_id, [response], store=store, thread_id=CHAT, by="ann", via="chat"
            )
        except CheckpointNotPendingError as error:
            print(f"bot: too late, this one is {error.state}.")
        except (CheckpointNotFound, InvalidCheckpoint, HitlStaleAnswer) as error:
            print(f"bot: {error}")
        else:
            post(result)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in ("approve", "deny"):
        sys.exit("say which button: press.py CHECKPOINT CALL approve|deny, as message.py has printed it")
    asyncio.run(main(*sys.argv[1:]))
