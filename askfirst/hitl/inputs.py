"""Validating the arguments of `confirm`, `approve`, `ask` and `escalate`, with one sentence for the first fault."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from askfirst import limits
from askfirst.digests import call_digest
from askfirst.errors import HitlInvalidRequest, InvalidMessage
from askfirst.messages import JsonObject, check_depth
from askfirst.requests import AskRequest, Question

P = TypeVar("P", bound=BaseModel)
_UNWRITABLE = (
    "cannot be written as JSON: it has a Python object or invalid Unicode in it, or it is nested too deeply"
)
_LONGEST = 1e12
"""The longest time-out in seconds: every store can keep its deadline."""


def checked_seconds(timeout: Any) -> float | None:
    """The time-out, if it is a valid number of seconds or None. Raises `HitlInvalidRequest`."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise HitlInvalidRequest(
            f"a time-out is a number of seconds, or None for no limit; {timeout!r} is neither"
        )
    if not 0 <= timeout <= _LONGEST:  # refuses NaN, too
        allowed = f"from 0 to {_LONGEST:g} seconds, or None for no limit"
        raise HitlInvalidRequest(f"a time-out is {allowed}; {timeout!r} is not")
    return timeout


def check_signal(signal: Any) -> None:
    """Raise `HitlInvalidRequest` for a signal that is not an `asyncio.Event`: a `threading.Event` would block the
    loop."""
    if isinstance(signal, type) or not inspect.iscoroutinefunction(getattr(signal, "wait", None)):
        raise HitlInvalidRequest(f"signal is an asyncio.Event, not {type(signal).__qualname__}")


def checked_payload(kind: type[P], **fields: Any) -> P:
    """The payload, if every store can keep it and every surface can show it. Raises `HitlInvalidRequest`."""
    try:
        payload = kind(**fields)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise HitlInvalidRequest(f"{where} cannot be asked like this: {fault['msg']}") from None
    for name, value in payload:
        if name not in _CHECKED_BEFORE:
            _check_writable(name, value)
    return payload


_CHECKED_BEFORE = ("kind", "args", "args_schema", "details", "digest", "display")


def _check_writable(name: str, value: Any) -> None:
    if isinstance(value, str) and value.isascii():
        return
    try:
        to_json(value)
    except PydanticSerializationError:
        why = "is not valid Unicode" if isinstance(value, str) else _UNWRITABLE
        raise HitlInvalidRequest(f"{name} {why}") from None


def checked_details(details: Mapping[str, Any] | None) -> JsonObject | None:
    """The ``details`` of a request as JSON: dates, sets, models and the like as pydantic encodes them.

    Any other object is refused: its ``repr`` tells people nothing, and changes after a restart.
    """
    if details is None:
        return None
    if not isinstance(details, Mapping):
        raise HitlInvalidRequest(f"details have to be a mapping, not {type(details).__name__}")
    try:
        encoded = to_json(dict(details), inf_nan_mode="constants")
        check_depth(encoded, within=24)  # the payload around the details adds levels
        return from_json(encoded)
    except Exception as error:
        raise HitlInvalidRequest(f"details {_UNWRITABLE}") from error


def checked_digest(tool_name: str, args: Mapping[str, Any]) -> str:
    """The digest of the call that a person is asked to approve."""
    if not isinstance(args, Mapping):
        raise HitlInvalidRequest(f"args have to be a mapping, not {type(args).__name__}")
    try:
        return call_digest(tool_name, dict(args))
    except InvalidMessage:
        raise HitlInvalidRequest(f"args {_UNWRITABLE}") from None


def checked_questions(questions: Sequence[Question]) -> AskRequest:
    """The questions, if there are any and their keys differ. Raises `HitlInvalidRequest`."""
    if not isinstance(questions, Sequence) or isinstance(questions, str):
        raise HitlInvalidRequest(f"questions have to be a list, not {type(questions).__name__}")
    request = checked_payload(AskRequest, questions=list(questions))
    keys = [question.key for question in request.questions]
    if not keys:
        raise HitlInvalidRequest("there is no question to ask")
    for key in keys:
        if keys.count(key) > 1:
            raise HitlInvalidRequest(f"each question needs a different key; {key!r} is there twice")
    return request


def checked_choices(choices: Sequence[str]) -> list[str]:
    """The choices, if they are different texts, and a page can show all of them. Raises `HitlInvalidRequest`."""
    if isinstance(choices, str):
        raise HitlInvalidRequest(f"choices are a list of texts; {choices!r} is a single one")
    if not isinstance(choices, Sequence) or not all(isinstance(it, str) for it in choices):
        raise HitlInvalidRequest(f"choices are a list of texts, not {choices!r}")
    listed = list(choices)
    if not listed:
        raise HitlInvalidRequest("choices are empty; there is nothing to choose from")
    if len(listed) > limits.CHOICES:
        raise HitlInvalidRequest(
            f"an escalation has at most {limits.CHOICES} choices, not {len(listed)}; ask with options for more"
        )
    for choice in listed:
        if not choice or choice.isspace():
            raise HitlInvalidRequest(f"a choice needs a text; {choice!r} has none")
        if len(choice) > limits.CHOICE_CHARACTERS:
            raise HitlInvalidRequest(
                f"a choice has at most {limits.CHOICE_CHARACTERS} characters; {choice[:40]!r}... has {len(choice)}"
            )
        if listed.count(choice) > 1:
            raise HitlInvalidRequest(f"choices have to differ; {choice!r} is there twice")
    return listed
