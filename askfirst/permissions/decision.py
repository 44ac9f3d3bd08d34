"""The decision about a call before it runs, and the protocol of policies."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast, runtime_checkable

from askfirst.errors import InvalidPolicy
from askfirst.requests import approval_seconds

Verdict = Literal["allow", "ask", "deny"]
"""The three verdicts, from the loosest to the strictest."""

_FIELDS = ("allowed", "requires_approval", "matched_rule_id", "reason", "approval_timeout")


@dataclass(frozen=True, slots=True)
class Decision:
    """Allow, deny, or ask a person first.

    ``requires_approval`` comes first: if it is true a person is asked, whatever ``allowed`` says. Otherwise
    ``allowed`` decides. ``matched_rule_id`` names the rule it came from, ``reason`` says why in words.
    ``approval_timeout`` is how long the person has, in seconds or as a text such as ``"24h"``; None leaves that to
    the tool and the agent. ``grant`` is the digest of the grant by which nobody is asked, if there is one.
    """

    allowed: bool
    requires_approval: bool
    matched_rule_id: str | None = None
    reason: str | None = None
    approval_timeout: float | str | None = None
    grant: str | None = field(default=None, compare=False)
    also: tuple[tuple[str | None, str | None], ...] = field(default=(), compare=False, repr=False)
    """Reason and rule of every further rule or guardrail that asks a person, too."""

    def __post_init__(self) -> None:
        problems = [
            f"a decision's {name} is true or false, not {type(value).__name__}"
            for name, value in (("allowed", self.allowed), ("requires_approval", self.requires_approval))
            if not isinstance(value, bool)
        ]
        problems += [
            f"a decision's {name} is text or absent, not {type(value).__name__}"
            for name, value in (("matched_rule_id", self.matched_rule_id), ("reason", self.reason))
            if not (value is None or isinstance(value, str))
        ]
        if self.approval_timeout is not None:
            try:
                object.__setattr__(self, "approval_timeout", approval_seconds(self.approval_timeout))
            except ValueError as error:
                problems.append(f"a decision's {error}")
        if problems:
            raise InvalidPolicy(problems)

    @classmethod
    def allow(cls, reason: str | None = None) -> Decision:
        """The call may run."""
        return cls(allowed=True, requires_approval=False, reason=reason)

    @classmethod
    def deny(cls, reason: str) -> Decision:
        """The call does not run."""
        return cls(allowed=False, requires_approval=False, reason=reason)

    @classmethod
    def ask(cls, reason: str | None = None) -> Decision:
        """The call runs if a person approves it."""
        return cls(allowed=False, requires_approval=True, reason=reason)

    @classmethod
    def of(cls, value: Decision | Mapping[str, Any]) -> Decision:
        """A decision as it is, or one written as ``{"allowed": ..., "requires_approval": ...}``.

        Raises `InvalidPolicy` for anything else.
        """
        if isinstance(value, Decision):
            return value
        if not isinstance(value, Mapping):
            raise InvalidPolicy([f"a decision is a Decision or a dict, not {type(value).__name__}"])
        unknown = [str(key) for key in value if key not in _FIELDS]
        if unknown:
            raise InvalidPolicy([f"a decision has no {', '.join(unknown)}; it has {', '.join(_FIELDS)}"])
        missing = [key for key in _FIELDS[:2] if key not in value]
        if missing:
            raise InvalidPolicy([f"a decision needs {' and '.join(missing)}, each true or false"])
        return cls(**value)

    @property
    def verdict(self) -> Verdict:
        """The verdict: ``"allow"``, ``"ask"`` or ``"deny"``."""
        if self.requires_approval:
            return "ask"
        return "allow" if self.allowed else "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAction:
    """A call that wants to run.

    ``principal`` is on whose behalf, ``toolset`` the group that the tool belongs to, ``args`` what it would
    run with, ``agent_path`` the ids of the agents from the root to the one that calls. Its ``repr`` leaves
    the arguments out.
    """

    tool: str
    principal: str = "*"
    toolset: str | None = None
    args: Mapping[str, Any] = field(default_factory=lambda: cast("dict[str, Any]", {}), repr=False)
    tool_call_id: str = ""
    agent_path: tuple[str, ...] = ()


class PermissionPolicy(Protocol):
    """Decides about calls before they run. `decide` asks it, and denies if it fails."""

    def evaluate(self, action: PendingAction) -> Decision | Awaitable[Decision]:
        """Decide about one call. A plain function is run in a thread, an async one in the event loop."""
        ...


@runtime_checkable
class BatchPolicy(Protocol):
    """A policy that decides about all calls of a message at once, for example in one round trip."""

    def evaluate(self, action: PendingAction) -> Decision | Awaitable[Decision]:
        """Decide about one call."""
        ...

    def evaluate_many(
        self, actions: Sequence[PendingAction]
    ) -> Sequence[Decision] | Awaitable[Sequence[Decision]]:
        """Decide about these calls: one decision for each, in their order."""
        ...
