"""How far a person is in a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assent.messages import JsonObject
from assent.protocol import visible_fields
from assent.service.case import Case


def progress_of(case: Case, data: Mapping[str, Any], step: int) -> JsonObject | None:
    """What the protocol tells of it, or None for a case without a form."""
    form = case.form
    if form is None:
        return None
    fields = visible_fields(form, data)
    filled = sum(1 for field in fields if data.get(field.key) not in (None, "", []))
    said: JsonObject = {"completed_fields": filled, "total_fields": len(fields)}
    if form.steps is not None:
        said |= {"current_step": min(step, len(form.steps)), "total_steps": len(form.steps)}
    return said
