"""How much a case may hold that somebody else has written: measured before it is looked at more closely."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from assent import limits
from assent.service.items import LISTS
from assent.service.json_size import count_values, depth_fault
from assent.visible import hides


def context_fault(context: Mapping[str, Any]) -> str | None:
    """What is too much of a context, as a sentence; None if nothing is."""
    return next(_context_faults(context), None) or hidden_fault(context)


def _context_faults(context: Mapping[str, Any]) -> Iterator[str]:
    if len(context) > limits.CONTEXT_FACTS:
        yield f"has at most {limits.CONTEXT_FACTS} facts"
    if count_values(context, limits.BODY_VALUES) > limits.BODY_VALUES:
        yield f"has at most {limits.BODY_VALUES} values"
    deep = depth_fault(context)
    if deep:
        yield deep
    for name in LISTS.values():
        if _length(context.get(name)) > limits.CONTEXT_ITEMS:
            yield f"{name} has at most {limits.CONTEXT_ITEMS} items"
    form: Any = context.get("form")
    if isinstance(form, dict):
        yield from _form_faults(cast("dict[str, Any]", form))


def _form_faults(form: Mapping[str, Any]) -> Iterator[str]:
    """Of a form whose shape nobody has looked at yet, so that few faults can be found in that."""
    steps: list[Any] = form["steps"] if isinstance(form.get("steps"), list) else []
    if len(steps) > limits.FORM_STEPS:
        yield f"form has at most {limits.FORM_STEPS} steps"
    lists: list[Any] = [form.get("fields")]
    lists += [cast("dict[str, Any]", step).get("fields") for step in steps if isinstance(step, dict)]
    fields = [each for some in lists if isinstance(some, list) for each in cast("list[Any]", some)]
    if len(fields) > limits.FORM_FIELDS:
        yield f"form has at most {limits.FORM_FIELDS} fields"
    options = [cast("dict[str, Any]", each).get("options") for each in fields if isinstance(each, dict)]
    if any(_length(each) > limits.FIELD_OPTIONS for each in options):
        yield f"a field of form has at most {limits.FIELD_OPTIONS} options"
    if sum(map(_length, options)) > limits.FORM_OPTIONS:
        yield f"the fields of form have at most {limits.FORM_OPTIONS} options together"
    wide = max((len(cast("dict[str, Any]", each)) for each in fields if isinstance(each, dict)), default=0)
    if max(wide, len(form)) > limits.OBJECT_FIELDS:
        yield f"form, and each field of it, has at most {limits.OBJECT_FIELDS} names"


def hidden_fault(data: Any) -> str | None:
    """Whether there is more in a value that would not be seen than a page can show by name."""
    left = limits.HIDDEN_CHARACTERS
    for text in _texts(data):
        if text.isascii() and text.isprintable():
            continue
        letters = set(text)
        hidden = [each for each in letters if each != "\n" and hides(each)]
        left -= sum(text.count(each) for each in hidden[: limits.HIDDEN_CHARACTERS // 10])
        if left < 0 or len(hidden) > limits.HIDDEN_CHARACTERS // 10:
            return f"has more than {limits.HIDDEN_CHARACTERS} characters that would not be seen"
    return None


def _texts(data: Any) -> Iterator[str]:
    waiting = [data]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            inner = cast("Mapping[str, Any]", each)
            waiting += [*inner, *inner.values()]
        elif isinstance(each, list):
            waiting += cast("list[Any]", each)


def _length(given: Any) -> int:
    return len(cast("list[Any]", given)) if isinstance(given, list) else 0
