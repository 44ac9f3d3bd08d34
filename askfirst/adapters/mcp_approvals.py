"""Approvals of calls that have no id: equal calls are numbered, and each approval is used (spent) once.

An MCP client that is told to call again sends only the same name and arguments. So the key of a call consists of a
base, which is the same for equal calls, and an ordinal: the first one whose approval is not spent yet.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from askfirst.gate.gate import Gate
from askfirst.gate.key_state import CALL, doubt_answer, doubt_of, key_state
from askfirst.requests import ApproveAnswer, EscalateAnswer, StoredRequest

DENIAL_SECONDS = 600.0
"""How long a denial counts: within this time the same call is denied again, without asking anybody."""
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
        """The first ordinal of equal calls whose approval is not spent, or not given yet.

        Approvals are spent in order, so a binary search reads only a few of them.
        """
        low = self._known.get(base, 1) - 1  # this ordinal is known to be spent
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
        """Whether the approval under this key is spent: its call ran, runs in this process, or was denied longer ago
        than `DENIAL_SECONDS`."""
        await self._gate.ready()
        stored = await self._gate.ledger.stored(key)
        if stored is None:
            return False
        match key_state(stored):
            case "done":
                return True
            case "running":
                return key in self.running
            case "in doubt":
                _, known = doubt_of(stored)
                return not isinstance(doubt_answer(known), EscalateAnswer) and _is_over(known)
            case _:
                known = stored.requests.get(CALL)
                answer = None if known is None else known.answer
                is_approved = isinstance(answer, ApproveAnswer) and answer.decision != "deny"
                return not is_approved and _is_over(known)


def _is_over(known: StoredRequest | None) -> bool:
    """Whether a request was settled longer ago than `DENIAL_SECONDS`, so that an equal call needs a new one."""
    if known is None or known.status == "pending":
        return False
    return known.settled_at is None or time.time() - known.settled_at > DENIAL_SECONDS
