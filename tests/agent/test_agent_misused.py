"""What a new user gets wrong first is said in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from askfirst import Agent, AgentSpec, run_agent, run_agent_resume, tool
from askfirst.errors import InvalidCheckpoint, InvalidMessage, InvalidTool, ModelError
from askfirst.models import PydanticAIModel, ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("content", [5, None, {"text": "hi"}, 1.5])
async def test_what_is_nothing_to_say(content: Any) -> None:
    said = "has to be a text, or a list of parts such as TextPart and ImagePart, not "
    with pytest.raises(InvalidMessage, match=f"^content: {said}{type(content).__name__}$"):
        await Agent(model=ScriptedModel(["Hello."])).prompt(content)
    with pytest.raises(InvalidMessage, match=said):
        await run_agent(AgentSpec("a", ScriptedModel(["Hello."])), content)


@pytest.mark.parametrize("checkpoint", [None, {"pending": []}, "{}", 5])
async def test_what_is_no_checkpoint(checkpoint: Any) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"^a run goes on from a RunCheckpoint, .*, not from \w+; "):
        await run_agent_resume(AgentSpec("a", ScriptedModel([])), checkpoint, [])


def test_a_tool_without_annotations() -> None:
    def refund(order, cents=0):  # type: ignore[no-untyped-def]
        """Pay back."""

    said = (
        "tool 'refund': parameter 'order' has no annotation, so no model could know what to pass; say what it"
    )
    for make in (tool, lambda it: Agent(model=ScriptedModel([]), tools=[it])):
        with pytest.raises(InvalidTool, match=f"^{said} takes, such as order: str$"):
            make(refund)  # pyright: ignore[reportUnknownArgumentType]


def test_a_missing_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    said = "the model 'openai:gpt-5' needs an API key: set the environment variable OPENAI_API_KEY"
    with pytest.raises(ModelError, match=f"^{said}$"):
        PydanticAIModel("openai:gpt-5")
