"""Approvals of calls that have no id of their own: equal calls are counted, and each approval is spent once.

An MCP client that is told to call again sends the same name and arguments and nothing else. So the key of a call is
what is equal in equal calls (the base) and an ordinal: the first whose approval is not spent yet.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from askfirst.gate.gate import Gate
from askfirst.gate.standing import CALL, doubt_answer, doubt_of, standing
from askfirst.requests import ApproveAnswer, EscalateAnswer, StoredRequest

REFUSAL_SECONDS = 600.0
"""How long a refusal stands: until then the same call is refused again, with nobody asked."""
_REMEMBERED = 10_000


def key_of(base: str, ordinal: int) -> str:
    """The key of a call at the gate."""
    return f"mcp:{base}:{ordinal}"


class Approvals:
    """Finds the approval that a call may use, in the store of a gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.running: set[str] = set()
        """The keys whose bodies run in this process."""
        self._known: OrderedDict[str, int] = OrderedDict()

    async def first(self, base: str) -> int:
        """The ordinal of the first of equal calls whose approval is not spent, or not given yet.

        Approvals are spent in order, so that few of many have to be looked at.
        """
        low = self._known.get(base, 1) - 1  # spent
        high, step = low + 1, 1
        while await self._is_spent(key_of(base, high)):
            low, high, step = high, high + step, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_spent(key_of(base, middle)):
                low = middle
            else:
                high = middle
        self._known[base] = high
        self._known.move_to_end(base)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return high

    async def _is_spent(self, key: str) -> bool:
        """Whether a call ran with it, runs with it in this process, or was refused long enough ago."""
        await self._gate.ready()
        stored = await self._gate.ledger.stored(key)
        if stored is None:
            return False
        match standing(stored):
            case "done":
                return True
            case "running":
                return key in self.running
            case "in doubt":
                _, known = doubt_of(stored)
                chosen = doubt_answer(known)
                runs_again = isinstance(chosen, EscalateAnswer) and chosen.action == "retry"
                return not runs_again and _is_over(known)
            case _:
                known = stored.requests.get(CALL)
                answer = None if known is None else known.answer
                is_approved = isinstance(answer, ApproveAnswer) and answer.decision != "deny"
                return not is_approved and _is_over(known)


def _is_over(known: StoredRequest | None) -> bool:
    """Whether a request was settled so long ago that the same call is asked about anew."""
    if known is None or known.status == "pending":
        return False
    return known.settled_at is None or time.time() - known.settled_at > REFUSAL_SECONDS
