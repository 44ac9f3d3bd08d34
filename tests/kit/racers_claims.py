"""The processes of the races for one checkpoint; see proofs/test_races_claims.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from askfirst.checkpointer.connect import checkpointer_from_url

AGENT = "support"
TTL_SECONDS = 600


async def act(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> Any:
    """Claim or resolve a checkpoint; returns the result of a claim."""
    name, by = job["checkpoint_id"], job["by"]
    async with checkpointer_from_url(job["url"]) as store:
        await store.get_checkpoint(name, AGENT)  # connects, and loads the schema
        await start()
        if job["act"] == "resolve":
            await store.resolve_checkpoint(name, AGENT, by=by)
            return "resolved"
        claimed = await store.claim_checkpoint(name, AGENT, by=by, ttl_seconds=TTL_SECONDS)
        return {"by": claimed.claimed_by, "retaken": claimed.retaken, "body": claimed.body}
