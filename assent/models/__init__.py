"""Models: what answers when an agent asks."""

from assent.models.base import Model, ModelRequest, ModelSettings, ToolSchema
from assent.models.pydantic_ai import PydanticAIModel
from assent.models.scripted import ScriptedModel

__all__ = ["Model", "ModelRequest", "ModelSettings", "PydanticAIModel", "ScriptedModel", "ToolSchema"]
