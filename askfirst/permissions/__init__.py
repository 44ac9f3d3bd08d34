"""Decisions before a tool runs: allow, deny, or ask a person first.

The names, loaded when they are first used: an agent without rules loads no rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from askfirst.lazy import exports

if TYPE_CHECKING:
    from askfirst.permissions.cache import SessionPermissionCache
    from askfirst.permissions.constraints import ArgConstraint
    from askfirst.permissions.decision import BatchPolicy, Decision, PendingAction, PermissionPolicy
    from askfirst.permissions.evaluate import decide
    from askfirst.permissions.grants import Grant, GrantStore, MemoryGrants, grant_key
    from askfirst.permissions.guardrails import (
        ActionGuardrail,
        AnswerGuardrail,
        Guardrail,
        action_guardrail,
        answer_guardrail,
        judge_answer,
        tighten,
    )
    from askfirst.permissions.policy_file import PolicyWarning, load_rules
    from askfirst.permissions.rules import Rule, Scope
    from askfirst.permissions.shipped import shipped_policy
    from askfirst.permissions.static import Explanation, PassedRule, StaticPermissionPolicy

_HOMES = {
    "ActionGuardrail": "guardrails",
    "AnswerGuardrail": "guardrails",
    "ArgConstraint": "constraints",
    "BatchPolicy": "decision",
    "Decision": "decision",
    "Explanation": "static",
    "Grant": "grants",
    "GrantStore": "grants",
    "Guardrail": "guardrails",
    "MemoryGrants": "grants",
    "PassedRule": "static",
    "PendingAction": "decision",
    "PermissionPolicy": "decision",
    "PolicyWarning": "policy_file",
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
    "shipped_policy": "shipped",
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
    "shipped_policy",
    "tighten",
]

__getattr__, __dir__ = exports(globals(), _HOMES)
