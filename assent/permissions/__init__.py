"""Decisions before a tool runs: allow, deny, or ask a person first.

The names, loaded when they are first used: an agent without rules loads no rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assent.lazy import exports

if TYPE_CHECKING:
    from assent.permissions.cache import SessionPermissionCache
    from assent.permissions.constraints import ArgConstraint
    from assent.permissions.decision import BatchPolicy, Decision, PendingAction, PermissionPolicy
    from assent.permissions.evaluate import decide
    from assent.permissions.explain import Explanation, PassedRule
    from assent.permissions.grants import Grant, GrantStore, MemoryGrants, grant_key
    from assent.permissions.guardrails import (
        ActionGuardrail,
        AnswerGuardrail,
        Guardrail,
        action_guardrail,
        answer_guardrail,
        judge_answer,
        tighten,
    )
    from assent.permissions.policy_file import load_rules
    from assent.permissions.rules import Rule, Scope
    from assent.permissions.static import StaticPermissionPolicy
    from assent.permissions.unreachable import PolicyWarning

_HOMES = {
    "ActionGuardrail": "guardrails",
    "AnswerGuardrail": "guardrails",
    "ArgConstraint": "constraints",
    "BatchPolicy": "decision",
    "Decision": "decision",
    "Explanation": "explain",
    "Grant": "grants",
    "GrantStore": "grants",
    "Guardrail": "guardrails",
    "MemoryGrants": "grants",
    "PassedRule": "explain",
    "PendingAction": "decision",
    "PermissionPolicy": "decision",
    "PolicyWarning": "unreachable",
    "Rule": "rules",
    "Scope": "rules",
    "SessionPermissionCache": "cache",
    "StaticPermissionPolicy": "static",
    "action_guardrail": "guardrails",
    "answer_guardrail": "guardrails",
    "decide": "evaluate",
    "grant_key": "grants",
    "judge_answer": "guardrails",
    "load_rules": "policy_file",
    "tighten": "guardrails",
}

__all__ = [
    "ActionGuardrail",
    "AnswerGuardrail",
    "ArgConstraint",
    "BatchPolicy",
    "Decision",
    "Explanation",
    "Grant",
    "GrantStore",
    "Guardrail",
    "MemoryGrants",
    "PassedRule",
    "PendingAction",
    "PermissionPolicy",
    "PolicyWarning",
    "Rule",
    "Scope",
    "SessionPermissionCache",
    "StaticPermissionPolicy",
    "action_guardrail",
    "answer_guardrail",
    "decide",
    "grant_key",
    "judge_answer",
    "load_rules",
    "tighten",
]

__getattr__, __dir__ = exports(globals(), _HOMES)
