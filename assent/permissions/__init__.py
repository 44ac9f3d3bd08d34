"""Decisions before a tool runs: allow, deny, or ask a person first."""

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
