"""Calls that wait for a person, and what the person says of them, as portable values."""

from typing import Literal

from pydantic import Field

from assent.messages import JsonObject, Text, ToolCall, Value
from assent.requests import ApproveAnswer, Decision, EscalateAnswer


class PendingApproval(Value):
    """A call that cannot go on before a person decides.

    ``id`` is what a response names: the call's id, behind those of the calls that led to its agent.
    ``tool_call`` shows exactly what would run, and ``digest`` is the digest of that. ``agent_path`` are the
    ids of the agents from the root to the one that asks. ``kind`` is ``"approve"``; it is ``"escalate"`` for
    a call that was interrupted before, so that nobody knows whether it took effect: approving runs it again.
    """

    id: Text
    tool_call: ToolCall
    digest: str | None = None
    kind: Literal["approve", "escalate"] = "approve"
    agent_path: tuple[str, ...] = ()
    toolset: str | None = None
    principal: str = "*"
    matched_rule_id: str | None = None
    reason: Text | None = None
    created_at: float = 0.0
    """Seconds since 1970 (UTC)."""
    expires_at: float | None = None
    call_path: tuple[str, ...] = ()
    """The ids of the calls from the root to the agent that asks."""

    @property
    def question_id(self) -> str:
        """The id under which the agent that asks knows what is asked."""
        return self.id[sum(len(each) + 1 for each in self.call_path) :]


class ApprovalResponse(Value):
    """A person's decision on the pending approval with this ``id``; ``edited_args`` go with an edit.

    ``digest`` is that of the `PendingApproval` that the person was shown. With it the response counts for that
    alone: if the call was asked about again since, with other arguments, the response is stale.
    """

    id: str
    decision: Decision
    edited_args: JsonObject | None = Field(default=None, repr=False)  # a person may type a secret there
    reason: Text | None = None
    digest: str | None = None

    def answer_to(self, kind: str) -> ApproveAnswer | EscalateAnswer:
        """The response as the answer to what was asked: for a call in doubt, a denial means to skip it."""
        if kind == "approve":
            return ApproveAnswer(decision=self.decision, edited_args=self.edited_args, reason=self.reason)
        action = "skip" if self.decision == "deny" else "retry"
        return EscalateAnswer(action=action, modified_params=self.edited_args, reason=self.reason)
