"""The decision about a call before it runs, and the protocol of policies."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

from askfirst.display import RISKS, Risk
from askfirst.errors import InvalidPolicy
from askfirst.limits import LONGEST_HOLD, is_hold
from askfirst.requests import approval_seconds
from askfirst.wording import Wording, wording_faults, wording_in

Verdict = Literal["allow", "ask", "deny"]
"""The three verdicts, from the loosest to the strictest."""

_FIELDS = (
    "allowed",
    "requires_approval",
    "matched_rule_id",
    "reason",
    "approval_timeout",
    "risk",
    "hold_seconds",
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Allow, deny, or ask a person first.

    ``requires_approval`` comes first: if it is true a person is asked, whatever ``allowed`` says. Otherwise
    ``allowed`` decides. ``matched_rule_id`` names the rule it came from, ``reason`` says why in words.
    ``approval_timeout`` is how long the person has, in seconds or as a text such as ``"24h"``; None leaves that to
    the tool and the agent. ``grant`` is the digest of the grant by which nobody is asked, if there is one. ``risk``
    is the least risk that the person is told: it raises what the tool declares, and never lowers it. ``reason_in``
    has the reason in further languages, for the person who is asked; programs and models read ``reason``.
    ``hold_seconds`` is for how long a decision made on the review page can be undone; None leaves it to the service.
    """

    allowed: bool
    requires_approval: bool
    matched_rule_id: str | None = None
    reason: str | None = None
    approval_timeout: float | str | None = None
    grant: str | None = field(default=None, compare=False)
    also: tuple[Because, ...] = field(default=(), compare=False, repr=False)
    """Every further rule or guardrail that asks a person, too."""
    risk: Risk | None = None
    hold_seconds: float | None = None
    reason_in: Mapping[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)
    verdict: Verdict = field(init=False, compare=False, repr=False)
    """``"allow"``, ``"ask"`` or ``"deny"``."""

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
        problems += [f"a decision's {problem}" for problem in risk_problems(self.risk)]
        problems += [f"a decision's {problem}" for problem in hold_problems(self.hold_seconds)]
        if self.reason_in:
            problems += wording_faults("a decision's reason_in", self.reason_in)
        if self.approval_timeout is not None:
            try:
                object.__setattr__(self, "approval_timeout", approval_seconds(self.approval_timeout))
            except ValueError as error:
                problems.append(f"a decision's {error}")
        if problems:
            raise InvalidPolicy(problems)
        verdict: Verdict = "ask" if self.requires_approval else "allow" if self.allowed else "deny"
        object.__setattr__(self, "verdict", verdict)

    @classmethod
    def allow(cls, reason: str | None = None) -> Decision:
        """The call may run."""
        return cls(allowed=True, requires_approval=False, reason=reason)

    @classmethod
    def deny(cls, reason: str) -> Decision:
        """The call does not run."""
        return cls(allowed=False, requires_approval=False, reason=reason)

    @classmethod
    def ask(
        cls, reason: Wording | None = None, *, risk: Risk | None = None, hold_seconds: float | None = None
    ) -> Decision:
        """The call runs if a person approves it; ``risk`` is the least that they are told.

        ``reason`` is a sentence, or one for each language: ``{"en": "…", "zh-Hans": "…"}``.
        """
        return cls(False, True, risk=risk, hold_seconds=hold_seconds, **reason_fields(reason))

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
        return cls(**{**value, **reason_fields(value.get("reason"))})


class Because(NamedTuple):
    """Why a rule or a guardrail asks a person: its reason, the rule, and the reason in further languages."""

    reason: str | None
    matched_rule_id: str | None
    reason_in: Mapping[str, str]


def reason_fields(reason: Wording | None) -> dict[str, Any]:
    """A reason in one or several languages, as the fields of a `Decision`."""
    if not isinstance(reason, Mapping):
        return {"reason": reason}
    if problems := wording_faults("a decision's reason", reason):
        raise InvalidPolicy(problems)
    return {"reason": wording_in(reason), "reason_in": dict(reason)}


def risk_problems(risk: Any) -> list[str]:
    """What is wrong with a level of risk, in sentences."""
    if risk is None or (isinstance(risk, str) and risk in RISKS):
        return []
    return [f"risk is one of {', '.join(RISKS)}, not {risk!r}"]


def hold_problems(seconds: Any) -> list[str]:
    """What is wrong with how long a decision is held, in sentences."""
    if seconds is None or is_hold(seconds):
        return []
    return [f"hold_seconds is a number from 0 to {LONGEST_HOLD:g}, not {seconds!r}"]


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
