"""What is wrong with an object, as sentences by path, without any value of it."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError

from assent.limits import FAULTS

_SENTENCES = {
    "missing": "is required",
    "extra_forbidden": "is no field of the protocol here",
    "string_type": "must be text",
    "string_unicode": "must be valid Unicode",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "list_type": "must be a list",
    "too_short": "must have at least {min_length} item",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "literal_error": "must be {expected}",
    "timezone_aware": "must have a time zone",
    "value_error": "{error}",
}


def faults_of(error: ValidationError, data: Any) -> dict[str, str]:
    """Pydantic's complaints about some data: a sentence for each path, such as ``hitl.reminder_at[0]``.

    There is one more than are reported (`assent.limits.FAULTS`) if there are many.
    """
    faults: dict[str, str] = {}
    for each in error.errors(include_url=False, include_input=False):
        if len(faults) > FAULTS:
            break
        path = _path(each["loc"], data)
        sentence = _sentence(each["type"], each["msg"], each.get("ctx", {}))
        if path not in faults:
            faults[path] = sentence
        elif sentence not in faults[path]:
            faults[path] += f", or {sentence}"
    return faults


def _sentence(kind: str, message: str, facts: Mapping[str, Any]) -> str:
    if kind.startswith("datetime"):
        return "must be a date and time such as 2026-02-22T10:00:00Z"
    return _SENTENCES[kind].format(**facts) if kind in _SENTENCES else message


def _path(loc: Sequence[int | str], data: Any) -> str:
    """A location as a path into the data, without the union tags that pydantic puts between its steps."""
    path = ""
    for place, step in enumerate(loc):
        if isinstance(data, Mapping) and isinstance(step, str):
            known = cast("Mapping[str, Any]", data)
            if step not in known and place < len(loc) - 1:
                continue
            path, data = f"{path}.{step}", known.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            path, data = f"{path}[{step}]", cast("list[Any]", data)[step]
    return path.removeprefix(".")
