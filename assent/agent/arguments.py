"""A call's arguments: read as the tool's model, or refused with words that help the model to correct them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from assent.agent.emitter import logger
from assent.agent.masked import masks_in, unmasked
from assent.agent.tools import Tool, json_object


def parse_args(tool: Tool, args: Mapping[str, Any]) -> BaseModel | str:
    """The arguments as the tool's model, or what is wrong with them."""
    return _in_a_sentence(_read(tool, args, faults))


def parse_edit(tool: Tool, args: BaseModel | None, edited: Mapping[str, Any]) -> BaseModel | str:
    """Edited arguments as the tool's model, or what is wrong with them.

    Of ``args``, those that were edited, what is not shown stays as it is; None, if they are not known.
    """
    return _in_a_sentence(_read_edit(tool, args, edited, faults))


def _in_a_sentence(read: BaseModel | list[str]) -> BaseModel | str:
    return "; ".join(read) + "." if isinstance(read, list) else read


def _read_edit(
    tool: Tool,
    args: BaseModel | None,
    edited: Mapping[str, Any],
    told: Callable[[ValidationError], list[str]],
) -> BaseModel | list[str]:
    if args is None:
        return _read(tool, edited, told)
    restored, misplaced = unmasked(args, json_object(args), edited)
    read = misplaced or _read(tool, restored, told)
    return read if isinstance(read, list) else masks_in(read) or read


def _read(
    tool: Tool, args: Mapping[str, Any], told: Callable[[ValidationError], list[str]]
) -> BaseModel | list[str]:
    try:
        return tool.parameters.model_validate(dict(args))
    except ValidationError as error:
        return told(error)
    except Exception as error:  # a validator of the tool's own that failed at its work
        logger.exception("the arguments of %s could not be checked", tool.name)
        return [f"They could not be checked ({type(error).__name__})"]


def faults(error: ValidationError) -> list[str]:
    """What pydantic complains of, without the values it complains of."""
    return [_at(fault, fault["msg"]) for fault in error.errors(include_url=False, include_input=False)]


def _at(fault: ErrorDetails, words: str) -> str:
    return f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {words}"


def args_faults(tool: Tool, edited: Mapping[str, Any], args: BaseModel | None = None) -> list[str]:
    """What is wrong with edited arguments, one by one; nothing, if they fit the tool. No value is repeated.

    ``args`` are those that were edited, if they are known.
    """
    read = _read_edit(tool, args, edited, _unquoted)
    return read if isinstance(read, list) else []


_QUOTING = {
    "union_tag_invalid": "{discriminator} is one of {expected_tags}",
    "uuid_parsing": "Input should be a valid UUID",
}
"""What pydantic's messages come to that would quote the value, in part or in whole."""


def _unquoted(error: ValidationError) -> list[str]:
    said: list[str] = []
    for fault in error.errors(include_url=False, include_input=False):
        words = _QUOTING.get(fault["type"])
        said.append(_at(fault, words.format(**fault.get("ctx", {})) if words else fault["msg"]))
    return said


def unknown_tool(name: str, known: list[str]) -> str:
    """What a model is told that called a tool there is not."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"There is no tool called {name}.{hint} Available tools: {', '.join(known) or 'none'}."


def expected(tool: Tool) -> str:
    """What a tool takes, in a sentence."""
    properties = tool.schema.parameters.get("properties")
    required = tool.schema.parameters.get("required")
    names = [str(name) for name in properties] if isinstance(properties, Mapping) else []
    needed: list[Any] = required if isinstance(required, list) else []
    if not names:
        return "It takes no arguments: send {}."
    listed = ", ".join(name if name in needed else f"{name} (optional)" for name in names)
    return f"It takes a JSON object with: {listed}."
