"""Models: what answers when an agent asks."""

from askfirst.models.base import Model, ModelRequest, ModelSettings, ToolSchema
from askfirst.models.pydantic_ai import PydanticAIModel
from askfirst.models.scripted import ScriptedModel

__all__ = ["Model", "ModelRequest", "ModelSettings", "PydanticAIModel", "ScriptedModel", "ToolSchema"]
