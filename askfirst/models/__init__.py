"""Models: the protocol, a scripted model for tests, and every provider through pydantic-ai."""

from askfirst.models.base import Model, ModelRequest, ModelSettings, ToolSchema
from askfirst.models.pydantic_ai import PydanticAIModel
from askfirst.models.scripted import ScriptedModel

__all__ = ["Model", "ModelRequest", "ModelSettings", "PydanticAIModel", "ScriptedModel", "ToolSchema"]
