"""Action: what the gate is asked about."""

from __future__ import annotations

from dataclasses import dataclass, field

from askfirst.agent.tools import Effect
from askfirst.messages import JsonObject, call_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A call that wants to run, from any framework.

    With ``requires_approval`` a person is asked even if the policy allows the call. ``to`` names who is to be asked,
    ``display`` holds the words for the page, ``seal`` binds an approval to arguments that are not shown.
    """

    tool: str
    args: JsonObject
    args_schema: JsonObject | None = None
    requires_approval: bool = True
    effect: Effect = "once"
    timeout: float | None = None
    toolset: str = "default"
    principal: str = "*"
    agent_path: tuple[str, ...] = ()
    to: str | None = None
    display: JsonObject | None = None
    resumer: str | None = None
    """The resumer that continues when a person has decided, and the thread that it resumes; by default the key's
    own."""
    resumes: str | None = None
    seal: str | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """The digest that an approval is bound to."""
        return call_digest(self.tool, self.args)
