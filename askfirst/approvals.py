"""Pending approvals, and the responses to them, as portable values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast, get_args

from pydantic import Field

from askfirst.errors import InvalidCheckpoint, InvalidMessage
from askfirst.messages import JsonObject, Text, ToolCall, Value
from askfirst.requests import ApproveAnswer, Decision, EscalateAnswer


class PendingApproval(Value):
    """A call that waits for a person's decision.

    A response names the approval by its ``id``: the ids of the calls that led to the agent (``call_path``), then the
    id of the call itself. ``tool_call`` shows exactly what would run, and ``digest`` is its digest. ``agent_path``
    has the ids of the agents from the root to the agent that asks. ``kind`` is ``"approve"``; it is ``"escalate"``
    for a call in doubt, whose body was interrupted and may have taken effect: approving runs it again.
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
        """The request's id on the thread of the agent that asks: ``id`` without ``call_path``."""
        return self.id[sum(map(len, self.call_path)) + len(self.call_path) :]


class ApprovalResponse(Value):
    """A person's decision on the pending approval with this ``id``; ``edited_args`` go with an edit.

    ``digest`` is the digest of the `PendingApproval` that the person was shown. With it, the response counts for
    that call only: if a person was asked again since, about other arguments, the response is stale.
    """

    id: str
    decision: Decision
    edited_args: JsonObject | None = Field(default=None, repr=False)  # a person may type a secret there
    reason: Text | None = None
    digest: str | None = None

    def answer_to(self, kind: str) -> ApproveAnswer | EscalateAnswer:
        """The response as the answer to a request of this kind: for a call in doubt, a denial means ``skip``."""
        if kind == "approve":
            return ApproveAnswer(decision=self.decision, edited_args=self.edited_args, reason=self.reason)
        action = "skip" if self.decision == "deny" else "retry"
        return EscalateAnswer(action=action, modified_params=self.edited_args, reason=self.reason)


ResponseLike = ApprovalResponse | Mapping[str, Any]
"""A response as a value, or as a plain dict with the same names: ``{"id": "c1", "decision": "approve"}``."""

_NAMES = ("id", "decision", "edited_args", "reason", "digest")
_LIKE = 'such as {"id": "c1", "decision": "approve"}'


def as_responses(given: Sequence[ResponseLike]) -> list[ApprovalResponse]:
    """Responses as values. Raises `InvalidCheckpoint`, with a sentence for each fault, if one cannot be read."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        kind = "a dict" if isinstance(given, Mapping) else type(given).__name__
        raise InvalidCheckpoint([f"responses are a list of dicts {_LIKE}, not {kind}; put it in a list"])
    responses: list[ApprovalResponse] = []
    problems: list[str] = []
    for place, item in enumerate(given):
        if isinstance(item, ApprovalResponse):
            responses.append(item)
            continue
        found = list(_problems(place, item))
        problems += found
        if not found:
            responses.append(ApprovalResponse(**item))
    if problems:
        raise InvalidCheckpoint(problems)
    return responses


def _problems(place: int, item: Any) -> Iterator[str]:
    """The faults of a response as a dict. They quote no value, because a person may have typed a secret."""
    if not isinstance(item, Mapping):
        yield f"response {place + 1} is {type(item).__name__}; it is an ApprovalResponse or a dict {_LIKE}"
        return
    fields = cast("Mapping[Any, Any]", item)
    named = fields.get("id")
    if not isinstance(named, str) or not named:
        yield f"response {place + 1} needs the id of the pending approval that it answers, as text"
        return
    what = f"the response to {named!r}"
    for name in fields:
        if name not in _NAMES:
            yield f"{what} has {name!r}, which is not a field of a response: {', '.join(_NAMES)}"
    decision = fields.get("decision")
    if decision not in get_args(Decision):
        said = f"not {decision!r}" if isinstance(decision, str) else "and has to be there"
        yield f"the decision of {what} is one of {', '.join(get_args(Decision))}, {said}"
    elif all(name in _NAMES for name in fields):
        try:
            ApprovalResponse(**fields)
        except InvalidMessage as error:
            yield f"{what} does not fit: {error}"
