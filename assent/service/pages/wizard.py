"""The steps of a form: which are walked through, and which comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assent.protocol import Form, visible_fields
from assent.service.pages.fields import fields_of_step
from assent.service.pages.passage import Passage, passage


@dataclass(frozen=True, slots=True)
class Step:
    """Where a person is in a form. ``place`` counts the steps that these answers lead through."""

    number: int
    place: int
    of: int
    title: Passage | None
    description: Passage | None
    is_summary: bool
    is_last: bool
    is_first: bool


def walked(form: Form, values: Mapping[str, Any]) -> list[int]:
    """The steps to walk through, from 1: summaries, and those with a field that is shown."""
    if form.steps is None:
        return [1]
    shown = {field.key for field in visible_fields(form, values)}
    return [
        number
        for number, step in enumerate(form.steps, 1)
        if not step.fields or any(field.key in shown for field in step.fields)
    ] or [1]


def step_at(form: Form, values: Mapping[str, Any], number: int) -> Step:
    """The step with a number, or the nearest before it that is walked through."""
    steps = walked(form, values)
    number = max((each for each in steps if each <= number), default=steps[0])
    here = None if form.steps is None else form.steps[number - 1]
    return Step(
        number=number,
        place=steps.index(number) + 1,
        of=len(steps),
        title=None if here is None else passage(here.title),
        description=None if here is None or not here.description else passage(here.description),
        is_summary=here is not None and not here.fields,
        is_last=number == steps[-1],
        is_first=number == steps[0],
    )


def step_after(form: Form, values: Mapping[str, Any], number: int) -> int:
    """The step that follows, or the last."""
    steps = walked(form, values)
    return next((each for each in steps if each > number), steps[-1])


def step_before(form: Form, values: Mapping[str, Any], number: int) -> int:
    """The step before, or the first."""
    steps = walked(form, values)
    return next((each for each in reversed(steps) if each < number), steps[0])


def step_with(form: Form, keys: Mapping[str, Any], otherwise: int) -> int:
    """The first step with a field among the keys."""
    for number in range(1, len(form.steps or ()) + 1):
        if any(field.key in keys for field in fields_of_step(form, number)):
            return number
    return otherwise
