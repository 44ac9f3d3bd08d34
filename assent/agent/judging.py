"""What the policy and the guardrails say of calls before they run; whatever goes wrong denies."""

from __future__ import annotations

from collections.abc import Sequence

from assent.agent.fold import answers
from assent.agent.run import Run
from assent.agent.tools import Tool, json_object
from assent.messages import JsonObject
from assent.permissions.decision import Decision, PendingAction
from assent.permissions.evaluate import decide
from assent.permissions.guardrails import judge_answer, stricter, tighten

ALLOWED = Decision.allow()


def is_judged(run: Run) -> bool:
    """Whether anybody has a say before calls run."""
    return run.policy is not None or bool(run.spec.guardrails)


async def judge(run: Run, calls: Sequence[tuple[Tool, str, JsonObject]]) -> list[Decision]:
    """A decision for each call (the tool, the call's id, its arguments): the policy's, or a stricter one.

    The policy is asked about all of them at once, the guardrails after it.
    """
    if not calls or not is_judged(run):
        return [ALLOWED for _ in calls]
    actions = [
        PendingAction(
            tool=tool.name,
            principal=run.principal,
            toolset=tool.toolset,
            args=args,
            tool_call_id=call_id,
            agent_path=run.path,
        )
        for tool, call_id, args in calls
    ]
    decisions = await decide(run.policy, actions)
    guardrails = run.spec.guardrails
    if not guardrails:
        return decisions
    decisions = await tighten(decisions, actions, guardrails)
    said = next(answers(run.messages), None)
    objection = None if said is None else await judge_answer(said, guardrails)
    if objection is None:
        return decisions
    return [stricter(decision, objection) for decision in decisions]


async def judge_call(run: Run, tool: Tool, call_id: str, args: object) -> Decision:
    """The decision about one call with these arguments, a model or a mapping."""
    [decision] = await judge(run, [(tool, call_id, json_object(args))])
    return decision
