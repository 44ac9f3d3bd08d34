"""Agents as tools: a call that runs another agent on a thread of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from askfirst.agent.context import current
from askfirst.agent.foreign_channel import whole_channel
from askfirst.agent.tools import Tool, ToolContext
from askfirst.channels import HitlChannel, LeastChannel
from askfirst.errors import InvalidAgent

if TYPE_CHECKING:
    from askfirst.agent.spec import AgentSpec


class Prompt(BaseModel, defer_build=True):
    """What a subagent is asked to do."""

    prompt: str = Field(description="The task, in words, with all that the agent needs to know.")


@dataclass(frozen=True, slots=True, eq=False)
class SubagentTool(Tool):
    """A tool whose body is another agent's run; make it with `subagent_tool`."""

    spec: AgentSpec | None = None
    channel: HitlChannel | None = None

    @property
    def agent(self) -> AgentSpec:
        """The subagent's definition."""
        if self.spec is None:
            raise InvalidAgent(
                f"the subagent tool {self.name!r} has no spec; make it with subagent_tool(spec)"
            )
        return self.spec


def subagent_tool(
    spec: AgentSpec,
    *,
    description: str | None = None,
    channel: LeastChannel | None = None,
    requires_approval: bool = False,
) -> Tool:
    """A tool that runs an agent: named after its id, with one argument, ``prompt``.

    The agent works on a thread of its own under the caller's, with its own tools, policy, guardrails and
    iterations; without a policy of its own the caller's holds for it. It asks people through ``channel`` if it
    has one, else as its caller does. Running it is no effect: what its tools do is kept account of there, so
    a run that stopped in the middle goes on where it was. It may have had some, though: on a fork of the
    caller's thread, where it would begin anew, a person is asked first.
    """

    async def body(args: BaseModel, context: ToolContext) -> Any:
        parent = current.get().session
        if parent is None:
            raise InvalidAgent(f"the subagent {spec.id!r} can only be called by an agent")
        return await parent.delegate(tool, context.tool_call_id, Prompt.model_validate(args).prompt)

    tool = SubagentTool(
        name=spec.id,
        parameters=Prompt,
        function=body,
        description=spec.description if description is None else description,
        requires_approval=requires_approval,
        effect="none",
        spec=spec,
        channel=None if channel is None else whole_channel(channel),
    )
    return tool
